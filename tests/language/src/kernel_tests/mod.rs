//! Tests of Rust's collections in kernels: each runs in threads of a kernel.

extern crate alloc;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use alloc::rc::{Rc, Weak};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use alloc::{format, vec};
use core::cell::{Cell, RefCell};
use core::hint::black_box;
use warpheap_device::{kernel_test, thread};

warpheap_device::global_heap!();

/// Where the tests find their kernels.
#[cfg(test)]
const PTX: &str = include_str!(env!("TESTS_PTX_SM_70"));

kernel_test! {
    ptx: PTX;
    /// Collections, each with the number of the thread in it.
    mod collections {
        fn a_vector_is_sorted_and_searched() {
            let i = thread::index_1d();
            let mut all: Vec<u32> = (0..200).map(|n| (n * 7919 + i) % 1009).collect();
            all.sort_unstable();
            all.dedup();
            assert!(all.is_sorted());
            for (at, n) in all.iter().enumerate() {
                assert_eq!(all.binary_search(n), Ok(at));
            }
        }

        fn a_stable_sort_keeps_the_order_of_equals() {
            let mut all: Vec<(u32, u32)> = (0..150).map(|n| (n % 7, n)).collect();
            all.sort_by_key(|(key, _)| *key);
            assert!(all.windows(2).all(|two| two[0] < two[1]));
        }

        fn a_map_is_split_and_iterated_from_both_ends() {
            let i = u64::from(thread::index_1d());
            let mut low: BTreeMap<u64, String> = (0..60).map(|n| (n, format!("{}", n + i))).collect();
            let high = low.split_off(&25);
            assert_eq!((low.len(), high.len()), (25, 35));
            assert_eq!(high.iter().next_back().map(|(_, text)| text.clone()), Some((59 + i).to_string()));
            let odd: BTreeSet<u64> = high.into_keys().filter(|n| n % 2 == 1).collect();
            assert!(odd.into_iter().eq((25..60).step_by(2)));
        }

        fn a_queue_wraps_around() {
            let mut queue = VecDeque::with_capacity(8);
            for n in 0..100_u32 {
                queue.push_back(n);
                assert!(queue.len() <= 5 || queue.pop_front() == Some(n - 5));
            }
            queue.make_contiguous();
            assert_eq!(queue.as_slices(), (&[95, 96, 97, 98, 99][..], &[][..]));
        }

        fn a_heap_of_boxes_gives_the_largest_first() {
            let mut heap: BinaryHeap<Box<u32>> = (0..64).map(|n| Box::new((n * 37) % 64)).collect();
            for expected in (0..64).rev() {
                assert_eq!(heap.pop().map(|n| *n), Some(expected));
            }
        }

        fn counted_references_drop_their_value_once() {
            struct Noted<'a>(&'a Cell<u32>);
            impl Drop for Noted<'_> {
                fn drop(&mut self) {
                    self.0.set(self.0.get() + 1);
                }
            }
            let drops = Cell::new(0);
            let one = Rc::new(Noted(&drops));
            let (two, weak) = (one.clone(), Rc::downgrade(&one));
            drop(one);
            assert_eq!((drops.get(), weak.upgrade().is_some()), (0, true));
            drop(two);
            assert_eq!((drops.get(), weak.upgrade().is_none()), (1, true));
        }

        fn a_tree_knows_its_parents() {
            struct Node {
                parent: RefCell<Weak<Node>>,
                children: Vec<Rc<Node>>,
            }
            let node = |children| Rc::new(Node { parent: RefCell::default(), children });
            let root = node((0..5).map(|_| node(Vec::new())).collect());
            for child in &root.children {
                *child.parent.borrow_mut() = Rc::downgrade(&root);
            }
            let parents = root.children.iter().filter_map(|child| child.parent.borrow().upgrade());
            assert_eq!(parents.filter(|parent| Rc::ptr_eq(parent, &root)).count(), 5);
        }

        fn texts_are_split_and_joined() {
            let text = format!("a{}b,c,,d", thread::index_1d());
            let parts: Vec<&str> = text.split(',').collect();
            assert_eq!((parts.len(), parts[2]), (4, ""));
            assert_eq!(parts.join(","), text);
            assert_eq!("ünïcödé".chars().rev().collect::<String>(), "édöcïnü");
            assert!(text.parse::<u32>().is_err());
        }

        #[should_panic(expected = "index out of bounds")]
        fn an_index_is_checked() {
            let all: Vec<u32> = (1..4).collect();
            assert_eq!(all[black_box(3)], 4);
        }

        #[should_panic(expected = "blocks were not freed")]
        fn a_leak_is_found() {
            core::mem::forget(vec![thread::index_1d(); 10]);
        }
    }
}
