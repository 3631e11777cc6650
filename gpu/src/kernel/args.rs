//! The list of a kernel's arguments.

use super::arg::{KernelArg, all_lengths};

/// Size and alignment of one parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// Size in bytes.
    pub size: usize,
    /// Alignment in bytes.
    pub align: usize,
}

impl Param {
    const fn of<T>() -> Param {
        Param { size: size_of::<T>(), align: align_of::<T>() }
    }
}

mod sealed {
    /// A tuple of arguments.
    pub trait Tuple {}
}

/// The arguments of a kernel: a tuple of at most 16 [`KernelArg`]s.
pub trait KernelArgs: sealed::Tuple + Copy + Send + 'static {
    /// Size and alignment of each argument's representation, in order.
    const PARAMS: &'static [Param];
    /// The representations of all arguments.
    type Abi: Copy + 'static;

    /// Converts each argument to its representation, in order.
    fn to_abi(self) -> Self::Abi;
    /// Calls `each` with the address of each representation, in order.
    fn for_each_address(abi: &Self::Abi, each: impl FnMut(*const u8));
    /// Calls `found` with each range of device memory that an argument refers to: the argument's
    /// index, the range's address and its length in bytes.
    fn for_each_range(&self, found: impl FnMut(usize, u64, u64));
}

macro_rules! arguments {
    ($($t:ident $i:tt),*) => {
        impl<$($t),*> sealed::Tuple for ($($t,)*) {}

        impl<$($t: KernelArg),*> KernelArgs for ($($t,)*) {
            const PARAMS: &'static [Param] = &[$(Param::of::<$t::Abi>()),*];
            type Abi = ($($t::Abi,)*);
            #[allow(clippy::unused_unit)]
            fn to_abi(self) -> Self::Abi {
                ($(self.$i.to_abi(),)*)
            }
            #[allow(unused_mut, unused_variables)]
            fn for_each_address(abi: &Self::Abi, mut each: impl FnMut(*const u8)) {
                $(each((&raw const abi.$i).cast());)*
            }
            #[allow(unused_mut, unused_variables)]
            fn for_each_range(&self, mut found: impl FnMut(usize, u64, u64)) {
                $(self.$i.for_each_range(&mut |address, bytes| found($i, address, bytes));)*
            }
        }
    };
}
all_lengths! { arguments: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11, M 12, N 13, O 14, P 15 }
arguments!();
