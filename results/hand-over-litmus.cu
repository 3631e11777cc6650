#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
typedef unsigned u32;
typedef unsigned long long u64;
#define CK(x)                                                                                                        \
    do {                                                                                                             \
        cudaError_t e = (x);                                                                                         \
        if (e) {                                                                                                     \
            printf("%s: %s\n", #x, cudaGetErrorString(e));                                                           \
            exit(1);                                                                                                 \
        }                                                                                                            \
    } while (0)
// Hands 128 words from warp to warp, as the heap hands on the bits of a run: one warp waits until a count says that
// all bits are set, looks that they are, writes an entry, clears the bits, and releases; the other acquires, reads
// the entry through the cache of its multiprocessor, and sets the bits. A bit that is set already when it is set was
// cleared late. A third of the warps beside them keep memory and caches busy. Two ways to release: mode 0, the
// leader's for the warp, behind __syncwarp(); mode 1, each lane's own fence. usage: nvcc -O2 -arch=sm_90
// hand-over-litmus.cu -o litmus && ./litmus SECONDS_A_MODE
const int QW = 128;
struct Out {
    u64 late, lost, stale, rounds, stuck;
};
__device__ inline u32 ld_weak(const u32 *p) {
    u32 v;
    asm volatile("ld.weak.global.u32 %0,[%1];" : "=r"(v) : "l"(p));
    return v;
}
__device__ inline u64 add_acq(u64 *p, u64 n) {
    u64 v;
    asm volatile("atom.acquire.gpu.global.add.u64 %0,[%1],%2;" : "=l"(v) : "l"(p), "l"(n) : "memory");
    return v;
}
__device__ inline u64 add_rlx(u64 *p, u64 n) {
    u64 v;
    asm volatile("atom.relaxed.gpu.global.add.u64 %0,[%1],%2;" : "=l"(v) : "l"(p), "l"(n) : "memory");
    return v;
}
__device__ inline u64 cas_acq(u64 *p, u64 a, u64 b) {
    u64 v;
    asm volatile("atom.acquire.gpu.global.cas.b64 %0,[%1],%2,%3;" : "=l"(v) : "l"(p), "l"(a), "l"(b) : "memory");
    return v;
}
__device__ inline u32 or_rlx(u32 *p, u32 n) {
    u32 v;
    asm volatile("atom.relaxed.gpu.global.or.b32 %0,[%1],%2;" : "=r"(v) : "l"(p), "r"(n) : "memory");
    return v;
}
__device__ inline void st_rel(u64 *p, u64 n) {
    asm volatile("st.release.gpu.global.u64 [%0],%1;" ::"l"(p), "l"(n) : "memory");
}
__device__ inline void st_rlx(u64 *p, u64 n) {
    asm volatile("st.relaxed.gpu.global.u64 [%0],%1;" ::"l"(p), "l"(n) : "memory");
}
__device__ inline void st_rlx32(u32 *p, u32 n) {
    asm volatile("st.relaxed.gpu.global.u32 [%0],%1;" ::"l"(p), "r"(n) : "memory");
}
__device__ inline void ldq(const u32 *p, u32 *v) {
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0,%1,%2,%3},[%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "l"(p)
                 : "memory");
}
__device__ inline void stq0(u32 *p) {
    u32 z = 0;
    asm volatile("st.relaxed.gpu.global.v4.u32 [%0],{%1,%1,%1,%1};" ::"l"(p), "r"(z) : "memory");
}
__device__ inline void fence_rel() {
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
}
__global__ void kern(u32 *bits, u64 *flag, u64 *count, u32 *entry, uint4 *noise, size_t nn, Out *out, int rounds,
                     int mode, int cells) {
    int b = blockIdx.x, w = threadIdx.x / 32, l = threadIdx.x & 31, n = gridDim.x;
    if (w >= 6) {
        u32 x = b * 977 + threadIdx.x * 31 + 1;
        u32 s = 0;
        for (int i = 0; i < rounds * 6; i++) {
            x = x * 1664525u + 1013904223u;
            noise[(x >> 4) % nn] = make_uint4(x, x, x, x);
            s += ld_weak(entry + (x >> 7) % cells);
            if ((i & 63) == 0) {
                u64 f;
                asm volatile("ld.relaxed.gpu.global.u64 %0,[%1];" : "=l"(f) : "l"(&out->stuck));
                if (f)
                    break;
            }
        }
        if (s == 12345)
            noise[0] = make_uint4(s, s, s, s);
        return;
    }
    bool prod = w < 3;
    int k = w % 3;
    int shift = k == 0 ? 0 : k == 1 ? 1 : 131 % n;
    int owner = prod ? b : (b + n - shift) % n;
    int c = owner * 3 + k;
    u32 *B = bits + (size_t)c * QW;
    u64 *F = flag + c * 16;
    u64 *C = count + c * 16;
    u32 *E = entry + c;
    u64 late = 0, lost = 0, stale = 0;
    int r = 0;
    for (; r < rounds; r++) {
        if (prod) {
            bool ok = false;
            for (int t = 0; t < 2000000; t++) {
                u64 v = 0;
                if (l == 0)
                    v = cas_acq(C, QW, 0);
                v = __shfl_sync(~0u, v, 0);
                if (v == QW) {
                    ok = true;
                    break;
                }
            }
            if (!ok) {
                if (l == 0)
                    atomicAdd(&out->stuck, 1ull);
                break;
            }
            bool full = false;
            for (int t = 0; t < 4096; t++) {
                u32 q[4];
                ldq(B + l * 4, q);
                full = __all_sync(~0u, (q[0] & q[1] & q[2] & q[3]) == ~0u);
                if (full)
                    break;
            }
            if (!full) {
                lost++;
            }
            if (l == 5)
                st_rlx32(E, r + 1);
            stq0(B + l * 4);
            __syncwarp();
            if (mode == 0) {
                if (l == 0)
                    st_rel(F, r + 1);
            } else {
                fence_rel();
                __syncwarp();
                if (l == 0)
                    st_rlx(F, r + 1);
            }
        } else {
            bool ok = false;
            for (int t = 0; t < 2000000; t++) {
                u64 v = 0;
                if (l == 0)
                    v = add_acq(F, 0);
                v = __shfl_sync(~0u, v, 0);
                if (v == (u64)r + 1) {
                    ok = true;
                    break;
                }
            }
            if (!ok) {
                if (l == 0)
                    atomicAdd(&out->stuck, 1ull);
                break;
            }
            __syncwarp();
            u32 e = ld_weak(E);
            if (e != (u32)(r + 1))
                stale++;
            fence_rel();
            u32 bad = 0;
            for (int i = 0; i < 4; i++) {
                u32 o = or_rlx(B + i * 32 + l, ~0u);
                bad |= o;
            }
            add_rlx(C, 4);
            if (bad)
                late++;
        }
    }
    for (int o = 16; o; o /= 2) {
        late += __shfl_down_sync(~0u, late, o);
        stale += __shfl_down_sync(~0u, stale, o);
    }
    if (l == 0) {
        atomicAdd(&out->late, late);
        atomicAdd(&out->lost, lost);
        atomicAdd(&out->stale, stale);
        if (prod)
            atomicAdd(&out->rounds, (u64)r);
    }
}
int main(int c, char **v) {
    int seconds = atoi(v[1]);
    int sms;
    CK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
    int blocks = sms * 4, cells = blocks * 3;
    u32 *bits, *entry;
    u64 *flag, *count;
    uint4 *noise;
    Out *out;
    size_t nn = 1 << 26;
    CK(cudaMalloc(&bits, (size_t)cells * QW * 4));
    CK(cudaMalloc(&entry, cells * 4));
    CK(cudaMalloc(&flag, cells * 128));
    CK(cudaMalloc(&count, cells * 128));
    CK(cudaMalloc(&noise, nn * 16));
    CK(cudaMalloc(&out, sizeof(Out)));
    for (int mode = 0; mode < 2; mode++) {
        Out t = {};
        float ms = 0;
        cudaEvent_t a, b;
        CK(cudaEventCreate(&a));
        CK(cudaEventCreate(&b));
        int launches = 0;
        while (ms < seconds * 1000.f) {
            CK(cudaMemset(bits, 255, (size_t)cells * QW * 4));
            CK(cudaMemset(entry, 0, cells * 4));
            CK(cudaMemset(flag, 0, cells * 128));
            CK(cudaMemset(out, 0, sizeof(Out)));
            u64 *h = (u64 *)calloc(cells, 128);
            for (int i = 0; i < cells; i++)
                h[i * 16] = QW;
            CK(cudaMemcpy(count, h, cells * 128, cudaMemcpyHostToDevice));
            free(h);
            CK(cudaEventRecord(a));
            kern<<<blocks, 256>>>(bits, flag, count, entry, noise, nn, out, 20000, mode, cells);
            CK(cudaEventRecord(b));
            CK(cudaEventSynchronize(b));
            float m;
            CK(cudaEventElapsedTime(&m, a, b));
            ms += m;
            launches++;
            Out o;
            CK(cudaMemcpy(&o, out, sizeof o, cudaMemcpyDeviceToHost));
            t.late += o.late;
            t.lost += o.lost;
            t.stale += o.stale;
            t.rounds += o.rounds;
            t.stuck += o.stuck;
            if (o.stuck)
                break;
        }
        printf("%s: %llu hand-overs in %.1f s (%d launches): late clears seen by %llu lanes, lost %llu, stale "
               "entries %llu, stuck %llu\n",
               mode ? "each lane's fence" : "leader's release", t.rounds, ms / 1000, launches, t.late, t.lost,
               t.stale, t.stuck);
        fflush(stdout);
    }
}
