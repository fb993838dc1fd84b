//! SHA-256 over a canonical, versioned encoding.
//!
//! - Equal content gives equal bytes, whatever the order of an object's keys; different content gives different bytes,
//!   because each value carries its kind and its length.
//! - `capturedAt` is taken out before.

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Fingerprint of a value under a name that says what is encoded and in which version.
pub fn fingerprint(kind: &str, value: &impl Serialize) -> String {
    let mut value = serde_json::to_value(value).unwrap_or(Value::Null);
    if let Value::Object(map) = &mut value {
        map.shift_remove("capturedAt");
        map.shift_remove("fingerprint");
    }
    let mut bytes = Vec::new();
    text(&mut bytes, b'k', kind);
    encode(&mut bytes, &value);
    hex::encode(Sha256::digest(&bytes))
}

fn encode(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => out.push(b'n'),
        Value::Bool(false) => out.push(b'f'),
        Value::Bool(true) => out.push(b't'),
        Value::Number(number) => text(out, b'd', &number.to_string()),
        Value::String(string) => text(out, b's', string),
        Value::Array(items) => {
            head(out, b'a', items.len());
            items.iter().for_each(|item| encode(out, item));
        }
        Value::Object(map) => {
            head(out, b'o', map.len());
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            for (key, value) in entries {
                text(out, b's', key);
                encode(out, value);
            }
        }
    }
}

fn head(out: &mut Vec<u8>, kind: u8, len: usize) {
    out.push(kind);
    out.extend((len as u64).to_be_bytes());
}

fn text(out: &mut Vec<u8>, kind: u8, text: &str) {
    head(out, kind, text.len());
    out.extend(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn the_time_of_capture_does_not_enter() {
        let one = json!({"capturedAt": "a", "x": 1});
        let two = json!({"x": 1, "capturedAt": "b", "fingerprint": "old"});
        assert_eq!(fingerprint("t/1", &one), fingerprint("t/1", &two));
        assert_ne!(fingerprint("t/1", &one), fingerprint("t/2", &one));
    }

    #[test]
    fn the_encoding_of_version_one_stays_as_it_is() {
        let value = json!({"b": [1, null, true], "a": "é"});
        let mut bytes = Vec::new();
        encode(&mut bytes, &value);
        let hex = hex::encode(bytes);
        assert_eq!(
            hex,
            "6f0000000000000002730000000000000001617300000000000000\
             02c3a973000000000000000162610000000000000003640000000000000001316e74"
        );
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            any::<i64>().prop_map(Value::from),
            "[a-c]{0,3}".prop_map(Value::String),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
                prop::collection::btree_map("[a-c]{0,2}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn different_values_encode_differently(one in values(), two in values()) {
            let (mut left, mut right) = (Vec::new(), Vec::new());
            encode(&mut left, &one);
            encode(&mut right, &two);
            prop_assert_eq!(left == right, one == two);
        }
    }
}
