//! The lanes of a full warp, and of a group that is not one.

use crate::lanes::Group;
use crate::machine::Coords;
use crate::sync::AtomicU32;
use crate::test_lanes::on_lanes;
use crate::units::LaneMask;

/// Lanes with ranks that differ from their numbers.
const SOME: [u32; 5] = [3, 5, 6, 20, 31];
const MASK: u32 = 1 << 3 | 1 << 5 | 1 << 6 | 1 << 20 | 1 << 31;

#[test]
fn a_lane_of_a_group_knows_the_ranks_of_all() {
    on_lanes(MASK, Coords::SOLE, |group| {
        let rank = SOME.iter().position(|lane| *lane == group.lane()).unwrap();
        assert_eq!((group.rank(), group.count(), group.members()), (rank as u32, 5, LaneMask(MASK)));
        assert_eq!([0, 1, 2, 3, 4].map(|rank| group.lane_of(rank)), SOME);
        assert_eq!((group.leads(), group.leader(), group.whole().is_some()), (rank == 0, 3, false));
    });
}

#[test]
fn a_lane_of_a_full_warp_has_its_rank() {
    on_lanes(u32::MAX, Coords::SOLE, |group| {
        let warp = group.whole().unwrap();
        assert_eq!((warp.rank(), warp.lane_of(9)), (group.lane(), 9));
        assert_eq!((warp.members(), warp.group().members()), (LaneMask::ALL, LaneMask::ALL));
    });
}

#[test]
fn lanes_vote_and_read_what_others_have() {
    on_lanes(MASK, Coords::SOLE, |group: Group| {
        let lane = group.lane();
        assert_eq!(group.ballot(lane > 5), LaneMask(MASK & !0x3f));
        assert_eq!([3, 4].map(|least| group.all(lane >= least)), [true, false]);
        assert_eq!((group.read_32(lane, 20), group.read_64(u64::from(lane) << 40, 31)), (20, 31 << 40));
        assert_eq!(
            (group.broadcast_32(lane), group.broadcast_64(u64::MAX - u64::from(lane))),
            (3, u64::MAX - 3)
        );
        assert_eq!(group.lead_64(|| u64::from(lane) + 9), 12);
        let odd = group.filter(lane % 2 == 1);
        assert_eq!((odd.members().0, odd.is_member()), (MASK & 0xaaaa_aaaa, lane % 2 == 1));
        assert_eq!(group.matching(lane / 6).members().0, MASK & 0x3f << (lane / 6 * 6));
    });
}

#[test]
fn a_barrier_waits_for_all_lanes() {
    let come = AtomicU32::new(0);
    on_lanes(MASK, Coords::SOLE, |group| {
        come.add_relaxed(1);
        group.sync();
        assert_eq!(come.load_relaxed(), 5);
    });
}
