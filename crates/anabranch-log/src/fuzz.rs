//! Entry points for fuzzing: whatever the bytes, nothing panics, and what is read is what would be written. Shared by the
//! targets in `fuzz/` and by the tests below, which give them mutated encodings on every run.

use anabranch_core::{Event, Resume, Seq};
use anabranch_metrics::Meter;

use crate::codec;
use crate::head::Head;
use crate::keys;

/// Decodes an event: as it is, and with the checksum that its bytes should have.
///
/// # Panics
/// If a decoded event differs after it was written and read again.
pub fn event(data: &[u8]) {
    let key = keys::event(Seq(7));
    drop(codec::decode_event(&key, data));
    let Ok(event) = codec::decode_event(&key, &codec::with_checksum(&key, data)) else { return };
    let written = codec::encode_event(&key, &event).expect("what was read can be written");
    let again = codec::decode_event(&key, &written).expect("what was written can be read");
    // A NaN must equal itself here.
    assert_eq!(format!("{event:?}"), format!("{again:?}"));
}

/// Decodes a payload, likewise.
///
/// # Panics
/// If a decoded payload differs after it was written and read again.
pub fn group(data: &[u8]) {
    let key = b"fuzzed";
    drop(codec::decode_group(key, data));
    let Ok(group) = codec::decode_group(key, &codec::with_checksum(key, data)) else { return };
    let written = codec::encode_group(key, &group).expect("what was read can be written");
    let again = codec::decode_group(key, &written).expect("what was written can be read");
    assert_eq!(format!("{group:?}"), format!("{again:?}"));
    drop((group.check(), group.summary(), group.digest()));
}

/// Decodes the heads, `HEAD`, and a key of a group.
pub fn head(data: &[u8]) {
    drop(codec::decode_heads(keys::HEADS, data));
    drop(codec::decode_heads(keys::HEADS, &codec::with_checksum(keys::HEADS, data)));
    drop(Head::decode(data));
    drop(keys::group_id(data));
}

/// Folds a log of these events as an opening does, and gives it to `judge` as well.
/// Each event is two bytes of length and so many bytes of its encoding; what does not decode is left out.
pub fn recovery(data: &[u8], judge: impl Fn(&[Event])) {
    let (mut rest, mut events) = (data, Vec::new());
    while let Some((length, behind)) = rest.split_first_chunk() {
        let (bytes, behind) = behind.split_at(behind.len().min(usize::from(u16::from_le_bytes(*length))));
        let key = keys::event(Seq(events.len() as u64));
        if let Ok(event) = codec::decode_event(&key, &codec::with_checksum(&key, bytes)) {
            events.push(event);
        }
        rest = behind;
    }
    fold(&events);
    judge(&events);
    // Events with the right seqs get further.
    events.iter_mut().zip(0..).for_each(|(event, seq)| event.seq = Seq(seq));
    fold(&events);
    judge(&events);
}

fn fold(events: &[Event]) {
    let (mut resume, mut meter) = (Resume::new(), Meter::default());
    // The meter sees only events that the fold accepted, as when a log is opened.
    for event in events {
        if resume.apply(event).is_err() {
            break;
        }
        meter.apply(event);
    }
    drop((resume.into_state(), meter.metrics()));
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;
    use crate::codec::tests::{every_kind, some_groups};

    /// How often these are tried and from which seed: the same in every run, so that a failure comes back. For a longer or
    /// another run the environment sets `ANABRANCH_FUZZ_CASES` and `ANABRANCH_FUZZ_SEED`.
    fn cases() -> ProptestConfig {
        ProptestConfig {
            cases: from_environment("ANABRANCH_FUZZ_CASES", 1000),
            rng_seed: RngSeed::Fixed(from_environment("ANABRANCH_FUZZ_SEED", 11)),
            failure_persistence: None,
            max_shrink_iters: 200,
            ..ProptestConfig::default()
        }
    }

    fn from_environment<T: FromStr>(name: &str, otherwise: T) -> T {
        let Ok(value) = std::env::var(name) else { return otherwise };
        value.parse().unwrap_or_else(|_| panic!("{name}: expected a whole number, found {value:?}"))
    }

    /// The bytes of an encoding without its checksum, which the entry points add.
    fn bodies() -> Vec<Vec<u8>> {
        let event = |event: &Event| codec::encode_event(&[], event).unwrap().split_off(codec::HEADER);
        every_kind().iter().map(event).collect()
    }

    #[derive(Clone, Debug)]
    struct Harm(prop::sample::Index, u8, bool);

    fn harms(most: usize) -> impl Strategy<Value = Vec<Harm>> {
        vec(
            (any::<prop::sample::Index>(), any::<u8>(), any::<bool>()).prop_map(|(at, to, cut)| Harm(at, to, cut)),
            0..most,
        )
    }

    fn harm(bytes: &mut Vec<u8>, harms: &[Harm]) {
        for Harm(at, to, cut) in harms {
            if bytes.is_empty() {
                return;
            }
            let at = at.index(bytes.len());
            match (cut, to % 8) {
                (true, 0) => bytes.truncate(at),
                (true, 1) => bytes.insert(at, *to),
                _ => bytes[at] = *to,
            }
        }
    }

    proptest! {
        #![proptest_config(cases())]

        #[test]
        fn any_bytes_decode_or_are_refused(data in vec(any::<u8>(), 0..200)) {
            event(&data);
            group(&data);
            head(&data);
            recovery(&data, anabranch_replay::fuzz::judge);
        }

        #[test]
        fn harmed_events_decode_or_are_refused(kind: prop::sample::Index, harms in harms(4)) {
            let bodies = bodies();
            let mut body = bodies[kind.index(bodies.len())].clone();
            harm(&mut body, &harms);
            event(&body);
        }

        #[test]
        fn harmed_payloads_decode_or_are_refused(which: prop::sample::Index, harms in harms(4)) {
            let groups = some_groups();
            let mut body = codec::encode_group(b"fuzzed", &groups[which.index(groups.len())]).unwrap();
            let mut body = body.split_off(codec::HEADER);
            harm(&mut body, &harms);
            group(&body);
        }

        #[test]
        fn harmed_logs_fold_or_are_refused(
            kinds in vec((any::<prop::sample::Index>(), harms(3)), 0..40),
            opened: bool,
        ) {
            let bodies = bodies();
            let mut data = Vec::new();
            let first = opened.then(|| (bodies[0].clone(), Vec::new()));
            let rest = kinds.into_iter().map(|(kind, harms)| (bodies[kind.index(bodies.len())].clone(), harms));
            for (mut body, harms) in first.into_iter().chain(rest) {
                harm(&mut body, &harms);
                data.extend_from_slice(&(body.len() as u16).to_le_bytes());
                data.extend_from_slice(&body);
            }
            recovery(&data, anabranch_replay::fuzz::judge);
        }
    }
}
