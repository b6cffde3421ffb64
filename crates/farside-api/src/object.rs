//! What is written as an object, its fields by name, and in no other form.
//!
//! By itself serde also takes an array with the values in the order in which the code has the fields, which is no part of the
//! API: `[null, null]` would be a request that changes nothing, and another one after the next version.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A struct, read from an object alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectOf<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for ObjectOf<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Fields(PhantomData)).map(ObjectOf)
    }
}

struct Fields<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(fields))
    }
}

/// For a field of a request: `deserialize_with`.
pub(crate) fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    ObjectOf::deserialize(deserializer).map(|ObjectOf(value)| value)
}

/// The same where null may stand.
pub(crate) fn optional<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Option::<ObjectOf<T>>::deserialize(deserializer).map(|value| value.map(|ObjectOf(value)| value))
}

#[cfg(test)]
mod tests {
    use crate::{CreateVolume, SetMirror};

    use super::*;

    #[test]
    fn an_array_is_no_object() {
        let read = serde_json::from_str::<ObjectOf<SetMirror>>;
        assert!(read("{}").is_ok() && read(r#"{"link": null}"#).is_ok());
        assert_eq!(read(r#"{"link": {"window_bytes": 7}}"#).unwrap().0.link.unwrap().window_bytes, Some(7));
        for wrong in ["[]", "[null, null]", "null", "7", r#"{"link": []}"#, r#"{"link": [null, 7]}"#] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        let read = serde_json::from_str::<CreateVolume>;
        assert!(read(r#"{"name": "p/v", "size_bytes": 4096}"#).is_ok());
        assert!(read(r#"{"name": "p/v", "size_bytes": 4096, "limits": {"quota_bytes": 7}}"#).is_ok());
        assert!(read(r#"{"name": "p/v", "size_bytes": 4096, "limits": [7]}"#).is_err());
        assert!(read(r#"{"name": "p/v", "size_bytes": 4096, "limits": {"autogrow": [7]}}"#).is_err());
    }
}
