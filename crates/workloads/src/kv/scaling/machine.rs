//! The machine that is modelled: SGI UV 3000 of 004, Tables 3.1 and 3.2 and Figure 3.1(c).
//!
//! ```text
//!   rack: 4 enclosures in a ring, 8 blades in each, 2 processors on each blade
//!
//!   processor := enclosure (2 bits) | blade (3 bits) | processor of the blade (1 bit)
//!   hops      := hops(blades within an enclosure) + hops(enclosures)
//!                enhanced cube: 1, 2, or 1 over its diagonal     ring of four: 0, 1, 2
//! ```
//! The text says: the blades of an enclosure are an enhanced cube of three dimensions, every blade is linked to two
//! blades in other enclosures, and there are at most four hops. The ring and the diagonals are our reading of it; they
//! give exactly these links and this diameter.

use serde::Serialize;

/// Processors of the whole machine.
pub(crate) const PROCESSORS_MAX: usize = 64;

/// Hardware threads of a processor: its workers.
pub(crate) const THREADS_PER_PROCESSOR: usize = 12;

/// A row of Table 3.2, as far as the machine is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Distance {
    pub name: &'static str,
    /// What all threads of one processor read in sequence from there, GB/s.
    pub bandwidth_gb_per_s: f64,
    /// A dependent read. Where the table has a range, its middle.
    pub latency_ns: f64,
}

const fn distance(name: &'static str, bandwidth_gb_per_s: f64, latency_ns: f64) -> Distance {
    Distance { name, bandwidth_gb_per_s, latency_ns }
}

/// By distance: own memory, the other processor of the blade, one to four hops.
pub(crate) const DISTANCES: [Distance; 6] = [
    distance("local", 58.0, 81.0),
    distance("second processor of the blade", 11.9, 400.0),
    distance("1 hop", 7.5, 510.0),
    distance("2 hops", 7.5, 630.0),
    distance("3 hops", 7.1, 750.0),
    distance("4 hops", 6.5, 870.0),
];

/// The place of own memory in [`DISTANCES`].
pub(crate) const LOCAL: usize = 0;

/// The place in [`DISTANCES`] of what lies between two processors.
pub(crate) fn distance_between(one: usize, other: usize) -> usize {
    assert!(one.max(other) < PROCESSORS_MAX, "the machine has {PROCESSORS_MAX} processors");
    if one == other {
        return LOCAL;
    }
    let differing = (one >> 1 ^ other >> 1) & 7;
    let within = match differing.count_ones() {
        3 => 1,
        bits => bits as usize,
    };
    let around = (one >> 4).abs_diff(other >> 4);
    1 + within + around.min(4 - around)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_the_links_and_the_diameter_of_the_text() {
        let mut pairs_by_distance = [0; DISTANCES.len()];
        for one in 0..PROCESSORS_MAX {
            for other in 0..PROCESSORS_MAX {
                let distance = distance_between(one, other);
                assert_eq!(distance, distance_between(other, one));
                assert_eq!(distance == LOCAL, one == other);
                assert_eq!(distance == 1, one != other && one >> 1 == other >> 1);
                pairs_by_distance[distance] += 1;
            }
        }
        assert_eq!(pairs_by_distance.iter().sum::<usize>(), PROCESSORS_MAX * PROCESSORS_MAX);
        assert!(pairs_by_distance.iter().all(|pairs| *pairs > 0), "up to four hops: {pairs_by_distance:?}");
        // Blades at one hop: three along the edges of the cube, one over its diagonal, two in other enclosures.
        let adjacent = (0..PROCESSORS_MAX).filter(|other| distance_between(0, *other) == 2).count();
        assert_eq!(adjacent, 2 * (3 + 1 + 2));
        for pair in DISTANCES.windows(2) {
            assert!(pair[0].latency_ns < pair[1].latency_ns, "what is farther takes longer");
            assert!(pair[0].bandwidth_gb_per_s >= pair[1].bandwidth_gb_per_s, "and gets no more through");
        }
    }
}
