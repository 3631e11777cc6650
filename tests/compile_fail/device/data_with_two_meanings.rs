//! A field is checked with its type in the struct, even if its tokens mean another one elsewhere.

use std::marker::PhantomData;

/// Names that the checks might use internally.
const fn plain<T>() -> usize {
    1
}
const fn plain_field<T>() -> usize {
    1
}
const fn passed_as_it_is<T>() -> usize {
    1
}
const fn argument_field<T>() -> usize {
    1
}

pub trait Pick<const N: usize> {
    type T;
}
/// The type of a field of the struct.
impl Pick<1> for () {
    type T = bool;
}
impl Pick<4> for () {
    type T = u8;
}
impl Pick<1> for u32 {
    type T = u32;
}
impl Pick<4> for u32 {
    type T = [u8; 7];
}
impl Pick<1> for char {
    type T = char;
}
impl Pick<4> for char {
    type T = u32;
}
impl Pick<1> for PhantomData<u8> {
    type T = (u8, u64);
}
impl Pick<0> for PhantomData<u8> {
    type T = u64;
}
impl Pick<1> for PhantomData<u16> {
    type T = (u16, u64);
}
impl Pick<0> for PhantomData<u16> {
    type T = u64;
}

warpheap_device::device_data! {
    pub struct Flag {
        pub plain: <() as Pick<{ plain::<u32>() }>>::T,
        pub plain_field: <char as Pick<{ plain_field::<u32>() }>>::T,
    }

    pub struct Padded {
        pub small: u8,
        pub large: <u32 as Pick<{ plain::<u32>() }>>::T,
    }
}

warpheap_device::kernel_arg! {
    pub struct Passed {
        pub old: <PhantomData<u8> as Pick<{ passed_as_it_is::<u32>() }>>::T,
        pub new: <PhantomData<u16> as Pick<{ argument_field::<u32>() }>>::T,
    }
}

fn main() {}
