//! Types for what must not be mixed.

/// Lanes in a warp.
pub const WARP_SIZE: u32 = 32;

/// A set of lanes of one warp, bit `i` for lane `i`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(transparent)]
pub struct LaneMask(pub u32);

impl LaneMask {
    /// Every lane.
    pub const ALL: LaneMask = LaneMask(u32::MAX);

    /// The lane `lane` alone.
    #[inline(always)]
    pub const fn only(lane: u32) -> Self {
        LaneMask(1 << lane)
    }

    /// How many lanes.
    #[inline(always)]
    pub const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether `lane` is one of them.
    #[inline(always)]
    pub const fn contains(self, lane: u32) -> bool {
        self.0 >> lane & 1 == 1
    }

    /// Whether there are none.
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The highest lane. Meaningless if there is none.
    #[inline(always)]
    pub const fn last(self) -> u32 {
        31 - self.0.leading_zeros()
    }

    /// The lowest lane; 32 if there is none.
    #[inline(always)]
    pub const fn leader(self) -> u32 {
        self.0.trailing_zeros()
    }

    /// How many of the lanes come before `lane`.
    #[inline(always)]
    pub const fn rank(self, lane: u32) -> u32 {
        (self.0 & ((1 << lane) - 1)).count_ones()
    }

    /// These lanes without the lowest.
    #[inline(always)]
    pub const fn without_leader(self) -> Self {
        LaneMask(self.0 & self.0.wrapping_sub(1))
    }

    /// These lanes without those of `other`.
    #[inline(always)]
    pub const fn without(self, other: LaneMask) -> Self {
        LaneMask(self.0 & !other.0)
    }
}

/// The place of a block in its pool: `0..capacity`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(transparent)]
pub struct BlockIndex(pub u32);
