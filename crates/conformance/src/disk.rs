//! The cases of every store on a disk of its own: processes that are killed, files that are cut or flipped, disks that are
//! full. The test program starts itself again where a case needs a process.

pub mod damage;
pub mod full;
pub mod process;

use std::path::Path;
use std::sync::Arc;

use tms_core::Error;
use tms_core::store::Store;

/// What a backend lends to the cases.
pub trait DiskHarness {
    /// Whether it notices each bit that was turned in its files. One that trusts the disk in that must not end the process
    /// all the same.
    const FINDS_FLIPPED_BITS: bool;

    /// Opens the store in a folder, or begins a new one there. Blocks.
    ///
    /// # Errors
    /// As the store gives them.
    fn open(folder: &Path) -> Result<Arc<dyn Store>, Error>;
}

/// Expands to one named test per case for a [`DiskHarness`].
#[macro_export]
macro_rules! disk_suite {
    ($harness:ty) => {
        $crate::disk_cases! {
            $harness;
            process: [
                killed_process_keeps_what_it_acknowledged,
                store_of_another_process_is_refused,
                second_opening_is_refused,
                openings_at_once_make_one_store,
                process_killed_while_it_makes_a_store_leaves_none_or_a_whole_one,
                folder_that_is_a_file_is_refused,
            ];
            damage: [
                cut_file_is_told_or_has_lost_nothing,
                flipped_bit_is_told_or_has_lost_nothing,
            ];
            full: [
                full_files_are_told_and_heal,
                full_disk_is_told_and_heals,
            ];
        }
    };
}

/// Expands the list of [`disk_suite!`].
#[doc(hidden)]
#[macro_export]
macro_rules! disk_cases {
    ($harness:ty; $($group:ident: [$($case:ident),* $(,)?];)*) => {
        mod disk {
            #[allow(unused_imports)]
            use super::*;

            /// Plays another process for the cases; passes at once when nobody asks for one.
            #[test]
            fn child() {
                $crate::disk::process::play::<$harness>();
            }

            $(
                mod $group {
                    #[allow(unused_imports)]
                    use super::*;

                    $(
                        #[test]
                        fn $case() {
                            let child = $crate::disk::process::child_of(module_path!());
                            $crate::disk::$group::$case::<$harness>(&child);
                        }
                    )*
                }
            )*
        }
    };
}
