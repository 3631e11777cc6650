//! Newtypes for quantities that must not be mixed up.

/// Number of lanes in a warp.
pub const WARP_SIZE: u32 = 32;

/// A set of lanes of one warp, bit `i` for lane `i`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(transparent)]
pub struct LaneMask(pub u32);

impl LaneMask {
    /// Every lane.
    pub const ALL: LaneMask = LaneMask(u32::MAX);

    /// The set of the single lane `lane`.
    #[inline(always)]
    pub const fn only(lane: u32) -> Self {
        LaneMask(1 << lane)
    }

    /// The number of lanes.
    #[inline(always)]
    pub const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether `lane` is in the set.
    #[inline(always)]
    pub const fn contains(self, lane: u32) -> bool {
        self.0 >> lane & 1 == 1
    }

    /// Whether the set is empty.
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The highest lane. The set must not be empty.
    #[inline(always)]
    pub const fn last(self) -> u32 {
        31 - self.0.leading_zeros()
    }

    /// The lowest lane; 32 if the set is empty.
    #[inline(always)]
    pub const fn leader(self) -> u32 {
        self.0.trailing_zeros()
    }

    /// The number of lanes in the set below `lane`.
    #[inline(always)]
    pub const fn rank(self, lane: u32) -> u32 {
        (self.0 & ((1 << lane) - 1)).count_ones()
    }

    /// The set without its lowest lane.
    #[inline(always)]
    pub const fn without_leader(self) -> Self {
        LaneMask(self.0 & self.0.wrapping_sub(1))
    }

    /// The set without the lanes of `other`.
    #[inline(always)]
    pub const fn without(self, other: LaneMask) -> Self {
        LaneMask(self.0 & !other.0)
    }
}

/// The index of a block in its pool: `0..capacity`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(transparent)]
pub struct BlockIndex(pub u32);
