//! Kernels in several versions, of which the processor's is taken when they run.
//!
//! A kernel is a plain loop that the compiler vectorises. [`kernel!`] compiles it three times: with the instructions
//! that every processor of the architecture has, with AVX2 and with AVX-512. Tests run all versions that the machine
//! has and compare them.

/// Below this many rows the plain version is as fast.
const ROWS_MIN: usize = 16;

/// Which instructions a kernel may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Those of every processor.
    Portable,
    /// 256 bits.
    Avx2,
    /// 512 bits, with products of 64-bit integers and masks per byte.
    Avx512,
}

impl Level {
    /// The best one of this processor for a column of so many rows.
    #[inline]
    pub fn for_rows(rows: usize) -> Self {
        #[cfg(test)]
        if let Some(level) = forced::level() {
            return level;
        }
        if rows < ROWS_MIN { Self::Portable } else { Self::best() }
    }

    /// The best one of this processor.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    pub fn best() -> Self {
        if is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("bmi2")
        {
            Self::Avx512
        } else if is_x86_feature_detected!("avx2") {
            Self::Avx2
        } else {
            Self::Portable
        }
    }

    /// The best one of this processor.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn best() -> Self {
        Self::Portable
    }

    /// All that this processor has.
    #[cfg(test)]
    pub fn available() -> &'static [Self] {
        match Self::best() {
            Self::Portable => &[Self::Portable],
            Self::Avx2 => &[Self::Portable, Self::Avx2],
            Self::Avx512 => &[Self::Portable, Self::Avx2, Self::Avx512],
        }
    }
}

/// A function with a first argument that says which version of it runs. Generic parameters stand in square brackets.
macro_rules! kernel {
    (
        $(#[$meta:meta])*
        $visibility:vis fn $name:ident[$($generics:tt)*](
            $($argument:ident: $type:ty),* $(,)?
        ) $(-> $result:ty)? $body:block
    ) => {
        $(#[$meta])*
        $visibility fn $name<$($generics)*>(
            level: $crate::expression::instructions::Level, $($argument: $type),*
        ) $(-> $result)? {
            // Inlined, or else it would not be compiled with the caller's instructions.
            #[allow(clippy::inline_always)]
            #[inline(always)]
            fn portable<$($generics)*>($($argument: $type),*) $(-> $result)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2")]
            fn avx2<$($generics)*>($($argument: $type),*) $(-> $result)? {
                portable($($argument),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx2,bmi2")]
            fn avx512<$($generics)*>($($argument: $type),*) $(-> $result)? {
                portable($($argument),*)
            }

            match level {
                #[cfg(target_arch = "x86_64")]
                $crate::expression::instructions::Level::Avx2 => {
                    // SAFETY: this level is only chosen on a processor that has AVX2.
                    unsafe { avx2($($argument),*) }
                }
                #[cfg(target_arch = "x86_64")]
                $crate::expression::instructions::Level::Avx512 => {
                    // SAFETY: this level is only chosen on a processor that has these parts of AVX-512.
                    unsafe { avx512($($argument),*) }
                }
                #[cfg(not(target_arch = "x86_64"))]
                $crate::expression::instructions::Level::Avx2 | $crate::expression::instructions::Level::Avx512 => {
                    portable($($argument),*)
                }
                $crate::expression::instructions::Level::Portable => portable($($argument),*),
            }
        }
    };
}

pub(crate) use kernel;

#[cfg(test)]
pub(crate) mod forced {
    use super::Level;
    use std::cell::Cell;

    thread_local! {
        static LEVEL: Cell<Option<Level>> = const { Cell::new(None) };
    }

    pub(super) fn level() -> Option<Level> {
        LEVEL.get()
    }

    /// Runs a test with every version that this processor has, whatever the number of rows.
    pub(crate) fn each_level(test: impl Fn()) {
        for level in Level::available() {
            LEVEL.set(Some(*level));
            test();
        }
        LEVEL.set(None);
    }
}
