//! Which nation a supplier or customer belongs to: regions are alike, nations are not.
//!
//! ```text
//! hashes of a region:   |<------------------ 90 % ------------------>|2.5|2.5|2.5|2.5|
//!                                       large nation                   four small ones
//! ```

use super::population::REGIONS;
use tpchgen::distribution::Distributions;

/// Key of a nation, 0 to 24, in the order of the specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct NationKey(u8);

const LARGE: [NationKey; REGIONS as usize] = [NationKey(15), NationKey(24), NationKey(18), NationKey(7), NationKey(4)];

const SMALL: [[NationKey; 4]; REGIONS as usize] = [
    [NationKey(0), NationKey(5), NationKey(14), NationKey(16)],
    [NationKey(1), NationKey(2), NationKey(3), NationKey(17)],
    [NationKey(9), NationKey(12), NationKey(21), NationKey(8)],
    [NationKey(6), NationKey(22), NationKey(19), NationKey(23)],
    [NationKey(10), NationKey(11), NationKey(13), NationKey(20)],
];

impl NationKey {
    pub fn get(self) -> i64 {
        i64::from(self.0)
    }

    pub fn name(self) -> &'static str {
        Distributions::static_default().nations().get_values()[usize::from(self.0)]
    }

    /// The large nation of a region.
    pub fn large(region: u64) -> Self {
        LARGE[region as usize]
    }

    /// The small nations of a region.
    pub fn small(region: u64) -> [Self; 4] {
        SMALL[region as usize]
    }

    /// The nation of a supplier or customer by its hash among `count`.
    pub fn of_hash(hash: u64, count: u64) -> Self {
        let region = hash / (count / REGIONS);
        // Forty slices in a region, one for each small nation.
        match hash % (count / REGIONS) * 200 / count {
            slice @ 36..40 => Self::small(region)[slice as usize - 36],
            _ => Self::large(region),
        }
    }
}

/// The region's name.
pub(super) fn region_name(region: u64) -> &'static str {
    Distributions::static_default().regions().get_values()[region as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nations_have_the_names_of_the_benchmark() {
        let regions: Vec<_> = (0..REGIONS).map(region_name).collect();
        assert_eq!(regions, ["AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST"]);
        let large: Vec<_> = (0..REGIONS).map(|region| NationKey::large(region).name()).collect();
        assert_eq!(large, ["MOROCCO", "UNITED STATES", "CHINA", "GERMANY", "EGYPT"]);
        let small: Vec<_> = (0..REGIONS).map(|region| NationKey::small(region).map(NationKey::name)).collect();
        assert_eq!(
            small,
            [
                ["ALGERIA", "ETHIOPIA", "KENYA", "MOZAMBIQUE"],
                ["ARGENTINA", "BRAZIL", "CANADA", "PERU"],
                ["INDONESIA", "JAPAN", "VIETNAM", "INDIA"],
                ["FRANCE", "RUSSIA", "ROMANIA", "UNITED KINGDOM"],
                ["IRAN", "IRAQ", "JORDAN", "SAUDI ARABIA"],
            ]
        );
    }

    #[test]
    fn shares_of_nations_are_exact() {
        for count in [10_000u64, 150_000] {
            let mut rows = [0u64; 25];
            for hash in 0..count {
                rows[NationKey::of_hash(hash, count).get() as usize] += 1;
            }
            for region in 0..REGIONS {
                assert_eq!(rows[NationKey::large(region).get() as usize], count * 18 / 100);
                for nation in NationKey::small(region) {
                    assert_eq!(rows[nation.get() as usize], count / 200, "{}", nation.name());
                }
            }
        }
        // The order of the small ones within a region, at its end.
        assert_eq!(NationKey::of_hash(1_799, 10_000).name(), "MOROCCO");
        assert_eq!([1_800, 1_850, 1_900, 1_950].map(|hash| NationKey::of_hash(hash, 10_000)), NationKey::small(0));
        assert_eq!(NationKey::of_hash(9_999, 10_000).name(), "SAUDI ARABIA");
    }
}
