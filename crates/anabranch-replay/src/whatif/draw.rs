//! Draws: the choice of a recorded duration for work that was not recorded.

/// The work for which a duration is drawn.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Purpose {
    Group,
    Rest,
    Step,
    Publication,
}

/// Returns a number below `below` that depends on the arguments alone (`SplitMix64`), so that the same piece of work
/// gets the same duration under all settings.
pub(crate) fn draw(seed: u64, purpose: Purpose, number: u64, attempt: u64, below: usize) -> usize {
    let mut state = seed;
    for word in [purpose as u64, number, attempt] {
        state = (state ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        state ^= state >> 31;
    }
    (state % below.max(1) as u64) as usize
}
