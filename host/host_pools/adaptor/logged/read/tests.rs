//! Accepted and rejected logs.

use super::*;

const NAMES: &str = "thread,time,action,pointer,size,stream,align\n";

fn error_of(rows: &str) -> String {
    read_log(format!("{NAMES}{rows}").as_bytes()).unwrap_err().to_string()
}

#[test]
fn invalid_values_are_reported_with_line_and_column() {
    for (row, words) in [
        ("one,2,allocate,0x100,4,1,1", "line 3, column 1 (`thread`): `one` is not a thread number"),
        ("1,noon,allocate,0x100,4,1,1", "line 3, column 2 (`time`): `noon` is neither"),
        ("1,2,lend,0x100,4,1,1", "line 3, column 3 (`action`): `lend` is none of"),
        ("1,2,allocate,0xz,4,1,1", "line 3, column 4 (`pointer`): `0xz` is not an address"),
        ("1,2,allocate,0x100,4 KiB,1,1", "line 3, column 5 (`size`): `4 KiB` is not a number of bytes"),
        ("1,2,allocate,0x100,-4,1,1", "line 3, column 5 (`size`)"),
        ("1,2,allocate,0x100,4,second,1", "line 3, column 6 (`stream`)"),
        ("1,2,allocate,0x100,4,1,3", "line 3, column 7 (`align`): `3` is not an alignment"),
        (
            "1,2,free,,4,1,1",
            "line 3, column 4 (`pointer`): the value is missing; correct that line, or remove it",
        ),
        ("1,2,allocate,0x100,4,1", "line 3 has 6 columns, but line 1 has 7"),
        ("1,2,allocate,0x100,4,1,1,", "line 3 has 8 columns, but line 1 has 7"),
    ] {
        let message = error_of(&format!("1,1,allocate,0x200,8,1,1\n{row}\n"));
        assert!(message.contains(words), "{row}: {message}");
    }
}

#[test]
fn missing_and_ambiguous_columns_are_reported_by_name() {
    for (header, words) in [
        (
            "thread,time,action,pointer,size",
            "no column `stream`, but thread, time, action, pointer, size; a log has the columns",
        ),
        (
            "Thread,When,action,size,stream",
            "no column `time`, `pointer`, but Thread, When, action, size, stream;",
        ),
        (
            "1,10,allocate,0x100,4096,2,256",
            "has none of the column names, but 1, 10, allocate, 0x100, 4096, 2, 256;",
        ),
        ("thread;time;action;pointer;size;stream", "has none of the column names, but thread;time"),
        ("thread,time,action,pointer,size,stream,Size", "has the column `size` twice;"),
        ("thread,time,action,pointer,size,stream,tag,Tag", "has the column `tag` twice;"),
    ] {
        let message = read_log(format!("{header}\n1,1,free,0x1,1,1,1\n").as_bytes()).unwrap_err().to_string();
        assert!(message.contains("line 1 ") && message.contains(words), "{header}: {message}");
        assert!(message.contains("separated by commas"), "{message}");
    }
}

#[test]
fn invalid_utf8_is_reported_with_its_position() {
    let log = [NAMES.as_bytes(), b"1,2,allocate,0x100,4,1,\xff\n"].concat();
    let message = read_log(&log[..]).unwrap_err().to_string();
    assert!(message.contains("line 2, column 7: the text is not valid UTF-8; correct"), "{message}");
    let message = read_log(&b"\xff\xfe\0\n"[..]).unwrap_err().to_string();
    assert!(message.contains("line 1, column 1: the text is not valid"), "{message}");
}

#[test]
fn rmm_logs_are_read_unchanged() {
    let log = "Thread,Time,Action,Pointer,Size,Stream\n\
        140230,01:00:02.000003,allocate,0x7f00,4096,0x0\n\
        140230,01:00:02:000004,free,0x7f00,4096,0x7ffe10\n";
    let rows = read_log(log.as_bytes()).unwrap();
    assert_eq!((rows[0].time, rows[1].time), (3_602_000_003_000, 3_602_000_004_000));
    assert_eq!((rows[0].align, rows[0].stream, rows[1].stream), (256, 0, 0x7f_fe10));
    for time in
        ["24:00:00.000000", "01:60:00.000000", "01:02:03.5", "01:02:03", "1:2:3:000004:5", "01:02:61.000000"]
    {
        assert_eq!(time_of_day(time), None, "{time}");
    }
}

/// Times in seconds of the rows of an RMM log, in the order of the file.
fn seconds(times: &[&str]) -> Vec<f64> {
    let row = |time: &&str| format!("1,{time},allocate,0x1,1,0\n");
    let rows: String = times.iter().map(row).collect();
    let log = format!("Thread,Time,Action,Pointer,Size,Stream\n{rows}");
    let mut reader = LogReader::new(log.as_bytes()).unwrap();
    times.iter().map(|_| reader.read().unwrap().unwrap().record.time as f64 / 1e9).collect()
}

#[test]
fn the_time_of_day_continues_after_midnight() {
    const DAY: f64 = 86_400.0;
    // Rows of several threads around midnight, and a second midnight.
    let night = ["23:59:59.500000", "00:00:01.000000", "23:59:59.750000", "00:00:00.500000"];
    let later = ["23:30:00.000000", "12:30:00.000000", "00:00:02.000000"];
    assert_eq!(seconds(&night), [DAY - 0.5, DAY + 1.0, DAY - 0.25, DAY + 0.5]);
    assert_eq!(
        seconds(&[&night[..], &later].concat())[4..],
        [DAY - 1800.0, DAY + 45_000.0, 2.0 * DAY + 2.0][..]
    );
    // Idle for more than 12 hours; rows that were written late on the same day.
    assert_eq!(seconds(&["01:00:00.000000", "14:00:00.000000"]), [3600.0, 50_400.0]);
    assert_eq!(seconds(&["13:00:00.000000", "01:30:00.000000"]), [46_800.0, 5400.0]);
    // Exactly 12 hours earlier is the same day; a later row of the first day is never before it.
    assert_eq!(seconds(&["13:00:00.000000", "01:00:00.000000"]), [46_800.0, 3600.0]);
    assert_eq!(seconds(&["00:00:00.000000", "23:59:00.000000"]), [0.0, 86_340.0]);
    // After a midnight, a rise by 23 hours is the same day, and one by more is the day before.
    let night = ["23:30:00.000000", "00:30:00.000000"];
    assert_eq!(seconds(&[night[0], night[1], "23:30:00.000000"])[2], DAY + 84_600.0);
    assert_eq!(seconds(&[night[0], night[1], "23:30:01.000000"])[2], 84_601.0);
    // A leap second is the last one of its day.
    assert_eq!(seconds(&["23:59:60.500000", "00:00:00.750000"]), [DAY + 0.5, DAY + 0.75]);
    let log = format!("{NAMES}1,86399000000000,allocate,0x1,1,1,1\n1,5,free,0x1,1,1,1\n");
    assert_eq!(read_log(log.as_bytes()).unwrap()[0].time, 5, "nanoseconds have no days");
}

#[test]
fn blanks_and_column_order_are_ignored() {
    let log = "align, size,stream ,pointer,time,thread,action\n 16, 4 ,1,0x10, 9,2, allocate failure\n\n";
    let rows = read_log(log.as_bytes()).unwrap();
    assert_eq!((rows.len(), rows[0].align, rows[0].size, rows[0].thread), (1, 16, 4, 2));
    assert_eq!(rows[0].action, LogAction::AllocateFailure);
}

#[test]
fn tags_may_be_quoted_empty_or_absent_and_are_stored_once() {
    let log = "thread,time,action,pointer,size,stream,align,tag\n1,1,allocate,0x100,4,1,1,\"a, \"\"b\"\"\"\n\
               1,2,allocate,0x200,4,1,1,\n1,3,allocate,0x300,4,1,1,\"a, \"\"b\"\"\"\n";
    let rows = read_log(log.as_bytes()).unwrap();
    assert_eq!((rows[0].tag.as_deref(), rows[1].tag.as_deref()), (Some("a, \"b\""), None));
    assert!(Arc::ptr_eq(rows[0].tag.as_ref().unwrap(), rows[2].tag.as_ref().unwrap()));
    assert_eq!(read_log(format!("{NAMES}1,1,free,0x100,4,1,1\n").as_bytes()).unwrap()[0].tag, None);
}

#[test]
fn frees_and_allocations_of_one_clock_tick_are_ordered_by_address() {
    let log = format!(
        "{NAMES}1,9,allocate,0x100,4,1,1\n1,5,allocate,0x200,4,1,1\n1,9,free,0x100,4,1,1\n\
         2,9,allocate,0x200,8,1,1\n1,9,free,0x200,4,1,1\n"
    );
    let rows = read_rows(log.as_bytes()).unwrap();
    assert_eq!(rows.iter().map(|row| row.line).collect::<Vec<_>>(), [3, 2, 4, 6, 5]);
}

/// Two allocations wait for the frees of their addresses, in the other order.
#[test]
fn each_free_is_followed_by_the_allocation_of_its_address() {
    let log = format!(
        "{NAMES}1,1,allocate,0x100,4,1,1\n1,1,allocate,0x200,4,1,1\n1,9,allocate,0x100,4,1,1\n\
         1,9,allocate,0x200,4,1,1\n1,9,free,0x200,4,1,1\n1,9,free,0x100,4,1,1\n"
    );
    let rows = read_rows(log.as_bytes()).unwrap();
    assert_eq!(rows.iter().map(|row| row.line).collect::<Vec<_>>(), [2, 3, 6, 5, 7, 4]);
}

#[test]
fn a_reader_knows_whether_its_log_has_tags() {
    let has_tags = |header: &str| LogReader::new(header.as_bytes()).unwrap().has_tags();
    assert!(has_tags("thread,time,action,pointer,size,stream,align,tag\n"));
    assert!(!has_tags(NAMES) && !has_tags(""));
}

#[test]
fn a_double_allocation_stays_in_the_log() {
    let log = format!("{NAMES}1,1,allocate,0x100,4,1,1\n1,1,allocate,0x100,4,1,1\n1,2,free,0x100,4,1,1\n");
    assert_eq!(read_log(log.as_bytes()).unwrap().len(), 3);
}
