//! Encodings of Go peers that differ from serde's: nulls, zero ids, zero times, bytes.

use coder_domain::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Go's zero time: an unset time where `null` is not allowed (http-api 1.5).
pub const ZERO_TIME: Timestamp = Timestamp::constant(-62_135_596_800, 0);

/// Reads `null` as the empty value, as Go does for every field that is not a pointer.
pub fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Reads an id that clients always send; zero and `null` mean none (http-api 1.5).
pub fn optional_id<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Default + PartialEq + Deserialize<'de>,
{
    let id: Option<T> = Option::deserialize(deserializer)?;
    Ok(id.filter(|id| *id != T::default()))
}

/// Reads an optional enum value; Go clients may send an empty text or `null` for none.
pub fn optional_enum<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    use serde::de::IntoDeserializer as _;
    let word: Option<String> = Option::deserialize(deserializer)?;
    word.filter(|word| !word.is_empty()).map(|word| T::deserialize(word.into_deserializer())).transpose()
}

/// An optional id that is always written, as the zero UUID if there is none.
pub mod nil_as_none {
    use super::{Deserialize, Deserializer, Serialize, Serializer};

    /// Writes the id, or the zero UUID.
    pub fn serialize<S, T>(id: &Option<T>, serializer: S) -> Result<S::Ok, S::Error>
    where
        S: Serializer,
        T: Copy + Default + Serialize,
    {
        id.unwrap_or_default().serialize(serializer)
    }

    /// Reads the zero UUID and `null` as none.
    pub fn deserialize<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
    where
        D: Deserializer<'de>,
        T: Default + PartialEq + Deserialize<'de>,
    {
        super::optional_id(deserializer)
    }
}

/// An optional time that is always written, as Go's zero time when there is none.
pub mod zero_time {
    use super::{Deserialize, Deserializer, Serialize, Serializer, Timestamp, ZERO_TIME};

    /// Writes the time, or [`ZERO_TIME`].
    pub fn serialize<S: Serializer>(time: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
        time.unwrap_or(ZERO_TIME).serialize(serializer)
    }

    /// Reads [`ZERO_TIME`] and `null` as none.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
        let time: Option<Timestamp> = Option::deserialize(deserializer)?;
        Ok(time.filter(|time| *time != ZERO_TIME))
    }
}

/// A credential: written as its text, never shown by `Debug`.
pub mod secret {
    use coder_domain::secret::Secret;

    use super::{Deserialize, Deserializer, Serializer};

    /// Writes the text itself.
    pub fn serialize<S: Serializer>(secret: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(secret.expose())
    }

    /// Reads a text; `null` is the empty one.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
        let text: Option<String> = Option::deserialize(deserializer)?;
        Ok(Secret::new(text.unwrap_or_default()))
    }
}

/// The empty secret, for requests without one.
pub(crate) fn no_secret() -> coder_domain::secret::Secret {
    coder_domain::secret::Secret::new("")
}

/// Bytes in standard base64 with padding, `null` and absent being none. `Debug` shows only their number, since
/// Terraform state holds secrets.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Blob(pub Vec<u8>);

impl Blob {
    /// Whether there are no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl std::fmt::Debug for Blob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Blob({} bytes)", self.0.len())
    }
}

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use base64::Engine as _;
        serializer.serialize_str(&base64::engine::general_purpose::STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use base64::Engine as _;
        let text: Option<std::borrow::Cow<'de, str>> = Option::deserialize(deserializer)?;
        let Some(text) = text else { return Ok(Self::default()) };
        let bytes = base64::engine::general_purpose::STANDARD.decode(text.as_bytes());
        bytes.map(Self).map_err(|_| serde::de::Error::custom("not standard base64"))
    }
}

/// A name with a value: build parameters and template variables. `Debug` hides the value, which may be a secret.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NameValue {
    pub name: String,
    pub value: String,
}

impl NameValue {
    /// A pair of texts.
    pub fn new(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { name: name.into(), value: value.into() }
    }
}

impl std::fmt::Debug for NameValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NameValue").field("name", &self.name).field("value", &"…").finish()
    }
}

/// For `skip_serializing_if`: whether a value is its type's empty one.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
