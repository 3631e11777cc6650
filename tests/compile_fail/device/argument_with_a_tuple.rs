//! Struct arguments keep their fields in declaration order; tuples may be laid out differently.

warpheap_device::kernel_arg! {
    struct Wrapped {
        pair: (u8, u64),
    }
}

fn main() {}
