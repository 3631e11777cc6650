use super::*;

fn of_module(module: u64) -> PanicSettings {
    PanicSettings { module, ..PanicSettings::default() }
}

/// A panic with this message. Returns its line.
fn panics(record: &PanicRecord, message: &str) -> u32 {
    record.add(&of_module(7), Location::caller(), |to| to.write_str(message).unwrap());
    line!() - 1
}

#[test]
fn the_first_panic_is_described_and_the_others_are_counted() {
    let record = PanicRecord::empty();
    assert_eq!(record.take(), None);
    for (turn, message) in ["first", "next", ""].into_iter().enumerate() {
        let line = panics(&record, message);
        (0..turn).for_each(|_| assert_eq!(panics(&record, "other"), line));
        let seen = record.peek().unwrap();
        let panic = record.take().unwrap();
        assert_eq!(panic, seen);
        assert!(panic.file.ends_with("panic/record/tests.rs"), "{panic:?}");
        assert_eq!((panic.module, panic.line, panic.message.as_str()), (7, line, message));
        assert_eq!((panic.thread, panic.block, panic.others), (0, 0, turn as u64));
        assert_eq!((record.take(), record.peek()), (None, None));
    }
}

#[test]
fn a_panic_while_the_message_is_written_publishes_the_description() {
    let record = PanicRecord::empty();
    record.add(&of_module(1), Location::caller(), |to| {
        to.write_str("lost").unwrap();
        panics(&record, "in the message");
        assert_eq!(record.peek().unwrap().message, "");
    });
    let panic = record.take().unwrap();
    assert_eq!((panic.module, panic.others), (1, 1));
    assert_eq!(record.take(), None);
}

#[test]
fn the_end_of_a_grid_names_its_description() {
    let record = PanicRecord::empty();
    let epoch = record.add(&of_module(1), Location::caller(), |_| ());
    assert_eq!((record.ended(), record.is_pending()), (0, true));
    record.end_grid(epoch);
    assert_eq!((record.ended(), record.take().unwrap().number), (epoch, epoch));
    assert!(!record.is_pending());
}

#[test]
fn a_long_name_of_a_file_keeps_its_end() {
    let record = PanicRecord::empty();
    record.file.set(|writer| writer.push(&[b'x'; 8 * FILE_WORDS + 5]));
    assert_eq!(record.file.get().len(), 8 * FILE_WORDS);
}

/// The place of the last epoch's thread, or the zeros of a new record, are not those of this one.
#[test]
fn only_the_thread_that_describes_its_panic_publishes_it_early() {
    let record = PanicRecord::empty();
    for _ in 0..2 {
        record.claimed.add_relaxed(1);
        let epoch = panics_beside(&record);
        assert_eq!(record.take(), None, "claimed by a thread that has written nothing yet");
        record.describe(&of_module(2), Location::caller(), epoch);
        record.publish(epoch);
        assert_eq!(record.take().unwrap().module, 2);
    }
}

/// A panic while another thread is about to describe its own.
fn panics_beside(record: &PanicRecord) -> u64 {
    record.add(&of_module(1), Location::caller(), |_| unreachable!("another thread has claimed the epoch"))
}
