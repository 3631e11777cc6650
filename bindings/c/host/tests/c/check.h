// Checks of the test programs. Each prints the text of the failure that it expects.
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <warpheap.h>

#define MIB ((uint64_t)1 << 20)

#define REQUIRE(condition) require((condition) != 0, #condition, __FILE__, __LINE__)
#define OK(call) expect((call), WH_OK, "", #call, __FILE__, __LINE__)
// The call fails with this status and a text that contains `part`.
#define FAILS(call, status, part) expect((call), (status), (part), #call, __FILE__, __LINE__)

static inline void require(int holds, const char *what, const char *file, int line) {
    if (!holds) {
        fprintf(stderr, "%s:%d: %s; the last error: %s\n", file, line, what, wh_last_error());
        exit(1);
    }
}

static inline void expect(wh_status got, wh_status expected, const char *part, const char *call,
                          const char *file, int line) {
    const char *text = wh_last_error();
    if (got == expected && (expected == WH_OK || strstr(text, part) != NULL)) {
        if (expected != WH_OK) {
            printf("%s\n    %s: %s\n", call, wh_status_name(got), text);
        }
        return;
    }
    fprintf(stderr, "%s:%d: %s\n    is %s: %s\n    expected: %s: %s\n", file, line, call,
            wh_status_name(got), text, wh_status_name(expected), part);
    exit(1);
}

// Requires that `text` contains `part`, and frees it.
static inline void contains(char *text, const char *part) {
    require(text != NULL && strstr(text, part) != NULL, part, text ? text : "null", 0);
    OK(wh_string_free(text));
}

static inline wh_device cpu(void) {
    wh_device device = {WH_CPU, NULL};
    return device;
}

// Options with their size and zeros.
#define OPTIONS(type, name) \
    type name; \
    memset(&name, 0, sizeof name); \
    name.struct_bytes = sizeof name

static inline wh_heap_owner make_heap(uint64_t bytes) {
    wh_heap_owner heap;
    OPTIONS(wh_heap_options, options);
    options.bytes = bytes;
    OK(wh_heap_create(cpu(), &options, &heap));
    return heap;
}

#endif
