//! Kernels that write their arguments. `kernels.ptx` is the output of rustc 1.96 for this file and
//! sm_70, without comments and debugging information.

use warpheap_device::kernel::{DevicePtr, DeviceSlice};
use warpheap_device::{device_data, kernel, kernel_arg};

device_data! {
    /// A struct without padding.
    #[derive(Debug, Default, PartialEq)]
    pub struct Particle {
        pub position: [f32; 3],
        pub charge: i32,
    }

    /// Numbers of 128 bits.
    #[derive(Debug, PartialEq)]
    pub struct Wide {
        pub sum: u128,
        pub terms: i128,
    }
}

kernel_arg! {
    /// A struct with padding and a `bool`, neither of which is allowed in device memory.
    #[derive(Debug, PartialEq)]
    pub struct Settings {
        pub strict: bool,
        pub limit: u64,
        pub letters: [char; 2],
        pub first: Particle,
    }
}

kernel! {
    /// Writes its arguments, word by word.
    ///
    /// # Safety
    /// `out` is live, and the launch has one thread.
    pub unsafe fn numbers(
        a: u8, b: i8, c: u16, d: i16, e: u32, f: i32, g: u64, h: i64, i: usize, j: isize, k: f32, l: f64, m: bool,
        n: char, o: [u32; 3], out: DeviceSlice<u64>,
    ) {
        let words = [
            a.into(), b as u64, c.into(), d as u64, e.into(), f as u64, g, h as u64, i as u64, j as u64,
            k.to_bits().into(), l.to_bits(), m.into(), n.into(), o[0].into(), o[2].into(),
        ];
        // SAFETY: `out` is live and the launch has one thread, so no other thread accesses it.
        (0..).zip(words).for_each(|(i, word)| _ = unsafe { out.set(i, word) });
    }

    /// Writes the halves of numbers of 128 bits: between others, in a struct and in an array.
    ///
    /// # Safety
    /// See `numbers`.
    pub unsafe fn wide(a: u8, b: u128, c: i128, d: u32, e: Wide, f: [i128; 2], out: DeviceSlice<u64>) {
        let words = [
            b as u64, (b >> 64) as u64, c as u64, (c >> 64) as u64, e.sum as u64, (e.sum >> 64) as u64, f[0] as u64,
            (f[0] >> 64) as u64, f[1] as u64, (f[1] >> 64) as u64, a.into(), d.into(), e.terms as u64,
        ];
        // SAFETY: `out` is live and the launch has one thread, so no other thread accesses it.
        (0..).zip(words).for_each(|(i, word)| _ = unsafe { out.set(i, word) });
    }

    /// Writes its arguments, word by word: a tuple, a struct and arrays of them.
    ///
    /// # Safety
    /// See `numbers`.
    pub unsafe fn composites(
        pair: (u8, u64), nested: ((bool, i16), [f32; 2]), all: [(u16, u32); 2], settings: Settings,
        out: (DeviceSlice<u64>, DevicePtr<u64>),
    ) {
        let words = [
            pair.0.into(), pair.1, nested.0.0.into(), nested.0.1 as u64, nested.1[1].to_bits().into(), all[1].0.into(),
            all[0].1.into(), settings.strict.into(), settings.limit, settings.letters[1].into(),
            settings.first.charge as u64,
        ];
        assert_eq!(out.0.as_ptr(), out.1.0);
        // SAFETY: `out` is live and the launch has one thread, so no other thread accesses it.
        (0..).zip(words).for_each(|(i, word)| _ = unsafe { out.0.set(i, word) });
    }
}
