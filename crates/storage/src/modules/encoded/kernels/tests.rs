//! Every loop against the plain one, over widths, places and lengths.

use super::*;
use eris_platform::{SeededRandom, test_load};

fn levels() -> Vec<Level> {
    let mut levels = vec![Level::Scalar];
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        levels.push(Level::Avx2);
    }
    if Level::best() == Level::Avx512 {
        levels.push(Level::Avx512);
    }
    levels
}

/// Codes of a width, and how they are packed, bit by bit.
fn packed(random: &mut SeededRandom, width: u32, len: usize) -> (Vec<u64>, Vec<u8>) {
    let codes: Vec<u64> = (0..len)
        .map(|_| match random.index(4) {
            0 => code_mask(width),
            1 => 0,
            _ => random.next_u64() & code_mask(width),
        })
        .collect();
    let width = stored_width(width) as usize;
    let mut bytes = vec![0; len.div_ceil(GROUP_CODES) * width * 8 + PADDING_BYTES];
    for (position, code) in codes.iter().enumerate() {
        for bit in (0..width).filter(|bit| code >> bit & 1 != 0) {
            let at = position * width + bit;
            bytes[at / 8] |= 1 << (at % 8);
        }
    }
    (codes, bytes)
}

#[test]
fn codes_are_selected_alike_at_every_level() {
    let mut random = SeededRandom::new(1);
    for width in 0..=64 {
        for _ in 0..test_load(20) {
            let len = random.index(700) + 1;
            let (values, bytes) = packed(&mut random, width, len);
            let codes = Codes { bytes: &bytes, width: stored_width(width) };
            let any = |random: &mut SeededRandom| values[random.index(len)];
            let (low, high) = (any(&mut random), any(&mut random));
            let (low, high) = (low.min(high), low.max(high));
            let test = CodeRange { low, span: high - low, negated: random.chance(0.5) };
            let groups = len.div_ceil(GROUP_CODES);
            let first = random.index(groups);
            let mut start: Vec<u64> = (first..groups).map(|_| random.next_u64() | random.next_u64()).collect();
            start.iter_mut().filter(|_| random.chance(0.1)).for_each(|word| *word = 0);
            let expected = |position: usize| {
                let code = values.get(first * GROUP_CODES + position).copied();
                let within = code.is_some_and(|code| ((low..=high).contains(&code)) != test.negated);
                start[position / 64] >> (position % 64) & 1 != 0 && within
            };
            for level in levels() {
                let mut words = start.clone();
                select(level, codes, test, first, &mut words);
                for position in 0..len - first * GROUP_CODES {
                    let selected = words[position / 64] >> (position % 64) & 1 != 0;
                    assert_eq!(selected, expected(position), "{level:?} width {width} {test:?} at {position}");
                }
            }
        }
    }
}

#[test]
fn sets_of_codes_are_selected_alike_at_every_level() {
    let mut random = SeededRandom::new(2);
    for width in 0..=12 {
        for _ in 0..test_load(20) {
            let len = random.index(700) + 1;
            let (values, bytes) = packed(&mut random, width, len);
            let codes = Codes { bytes: &bytes, width: stored_width(width) };
            let set: Vec<u64> = (0..(code_mask(width) as usize + 1).div_ceil(64)).map(|_| random.next_u64()).collect();
            let groups = len.div_ceil(GROUP_CODES);
            let first = random.index(groups);
            for level in levels() {
                let mut words: Vec<u64> = (first..groups).map(|_| u64::MAX).collect();
                select_set(level, codes, &set, first, &mut words);
                for (position, code) in values.iter().enumerate().skip(first * GROUP_CODES) {
                    let at = position - first * GROUP_CODES;
                    let held = set[*code as usize / 64] >> (code % 64) & 1;
                    assert_eq!(words[at / 64] >> (at % 64) & 1, held, "{level:?} width {width} at {position}");
                }
            }
        }
    }
}

fn check_unpacked<L: Lane + PartialEq + std::fmt::Debug>(random: &mut SeededRandom, width: u32) {
    let len = random.index(300) + 1;
    let (values, bytes) = packed(random, width, len);
    let codes = Codes { bytes: &bytes, width: stored_width(width) };
    let (first, base) = (random.index(len), random.next_u64());
    let count = random.index(len - first + 1);
    let expected: Vec<L> = values[first..first + count].iter().map(|code| L::of(*code, base)).collect();
    for level in levels() {
        let mut out = vec![MaybeUninit::uninit(); count];
        let unpacked = unpack::<L>(level, codes, first, base, &mut out);
        assert_eq!(unpacked, &expected[..], "{level:?} width {width} {count} codes from {first}");
    }
    assert_eq!(codes.get(first), values[first]);
}

#[test]
fn codes_are_unpacked_alike_at_every_level() {
    let mut random = SeededRandom::new(3);
    for width in 0..=64 {
        for _ in 0..test_load(20) {
            check_unpacked::<u64>(&mut random, width);
            check_unpacked::<i64>(&mut random, width);
            if width <= 32 {
                check_unpacked::<u32>(&mut random, width);
                check_unpacked::<i32>(&mut random, width);
            }
            if width <= 16 {
                check_unpacked::<i16>(&mut random, width);
            }
            if width <= 8 {
                check_unpacked::<u8>(&mut random, width);
            }
        }
    }
}

#[test]
fn bits_are_listed_alike_at_every_level() {
    let mut random = SeededRandom::new(4);
    for _ in 0..test_load(200) {
        let sparse = random.chance(0.5);
        let words: Vec<u64> = (0..random.index(40))
            .map(|_| if sparse { random.next_u64() & random.next_u64() & random.next_u64() } else { random.next_u64() })
            .collect();
        let is_set = |position: &u32| words[*position as usize / 64] >> (position % 64) & 1 != 0;
        let expected = (0..words.len() as u32 * 64).filter(is_set).map(|position| position + 128);
        let expected: Vec<u32> = std::iter::once(7).chain(expected).collect();
        for level in levels() {
            let mut found = vec![7];
            list_bits(level, &words, 128, &mut found);
            assert_eq!(found, expected, "{level:?}");
        }
    }
}
