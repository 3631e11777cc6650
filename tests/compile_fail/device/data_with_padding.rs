//! Plain data has no padding, and any bytes are a valid value.

warpheap::device_data! {
    struct Padded {
        small: u8,
        large: u64,
    }

    struct Answer {
        yes: bool,
    }
}

fn main() {}
