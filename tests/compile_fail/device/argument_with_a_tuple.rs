//! The fields of a struct that is passed lie as they are declared; those of a tuple may not.

warpheap_device::kernel_arg! {
    struct Wrapped {
        pair: (u8, u64),
    }
}

fn main() {}
