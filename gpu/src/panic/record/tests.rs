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
fn a_wait_ends_with_the_publication() {
    let record = PanicRecord::empty();
    let epoch = record.add(&of_module(1), Location::caller(), |_| ());
    record.wait(epoch);
    assert_eq!(epoch, record.published.load_relaxed());
}

#[test]
fn a_long_name_of_a_file_keeps_its_end() {
    let record = PanicRecord::empty();
    record.file.set(|writer| writer.push(&[b'x'; 8 * FILE_WORDS + 5]));
    assert_eq!(record.file.get().len(), 8 * FILE_WORDS);
}
