//! AIDL types as JSON, and a report read back. Each key is the AIDL name in snake case, each enum
//! value its name; docs/report.md says what they mean.

use crate::aidl;
use crate::error::Code;
use crate::reset::board::State;
use crate::reset::report::FORMAT_VERSION;
use crate::reset::request::{Assurance, Logical, Marker, Method, Physical, Verify};
use serde_json::{Map, Value};

/// A plan.
pub fn plan(plan: &aidl::ResetPlan::ResetPlan) -> Value {
    plan.to_json()
}

/// A report.
pub fn report(report: &aidl::ResetReport::ResetReport) -> Value {
    report.to_json()
}

/// Step times.
pub fn steps(steps: &[aidl::StepTime::StepTime]) -> Value {
    steps.iter().map(Json::to_json).collect()
}

/// A device of an image.
pub fn image_device(device: &aidl::ImageDevice::ImageDevice) -> Value {
    device.to_json()
}

/// A status.
pub fn status(status: &aidl::ResetStatus::ResetStatus) -> Value {
    status.to_json()
}

/// The inverse of [`report`]. Keys that this version does not know are passed over.
///
/// # Errors
/// A line that names another format version, or the key that is missing or of another type.
pub fn parse_report(value: &Value) -> Result<aidl::ResetReport::ResetReport, String> {
    // First: of another version nothing else is known.
    let version: i32 = member(value, "formatVersion")?;
    if version != FORMAT_VERSION {
        return Err(format!(
            "format_version is {version}, this version reads {FORMAT_VERSION}"
        ));
    }
    Json::from_json(value)
}

/// A type that has a form in JSON.
trait Json: Sized {
    fn to_json(&self) -> Value;
    /// # Errors
    /// What is wrong, beginning with a blank or with `.key`.
    fn from_json(value: &Value) -> Result<Self, String>;
}

/// `startBytes` → `start_bytes`.
fn key(field: &str) -> String {
    let mut key = String::with_capacity(field.len() + 4);
    for letter in field.chars() {
        if letter.is_ascii_uppercase() {
            key.push('_');
        }
        key.push(letter.to_ascii_lowercase());
    }
    key
}

fn member<T: Json>(object: &Value, field: &str) -> Result<T, String> {
    let key = key(field);
    let value = object
        .as_object()
        .ok_or(" is no object")?
        .get(&key)
        .ok_or_else(|| format!(".{key} is missing"))?;
    T::from_json(value).map_err(|why| format!(".{key}{why}"))
}

/// Numbers, truth and text.
macro_rules! scalar {
    ($($type:ty: $read:expr, $name:literal;)*) => {$(
        impl Json for $type {
            fn to_json(&self) -> Value {
                Value::from(self.clone())
            }

            fn from_json(value: &Value) -> Result<$type, String> {
                let read: fn(&Value) -> Option<$type> = $read;
                read(value).ok_or_else(|| concat!(" is no ", $name).to_owned())
            }
        }
    )*};
}

scalar! {
    bool: Value::as_bool, "boolean";
    i32: |value| value.as_i64().and_then(|n| i32::try_from(n).ok()), "number of 32 bits";
    i64: Value::as_i64, "number of 64 bits";
    f64: Value::as_f64, "number";
    String: |value| value.as_str().map(str::to_owned), "text";
}

impl<T: Json> Json for Vec<T> {
    fn to_json(&self) -> Value {
        self.iter().map(Json::to_json).collect()
    }

    fn from_json(value: &Value) -> Result<Vec<T>, String> {
        let items = value.as_array().ok_or(" is no list")?;
        let read = |(i, item)| T::from_json(item).map_err(|why| format!("[{i}]{why}"));
        items.iter().enumerate().map(read).collect()
    }
}

/// Enums by their names; a number that this version has no name for stays a number.
macro_rules! by_name {
    ($($name:ident: $aidl:path,)*) => {$(
        impl Json for $aidl {
            fn to_json(&self) -> Value {
                $name::from_number(self.0).map_or(Value::from(self.0), |v| Value::from(v.name()))
            }

            fn from_json(value: &Value) -> Result<Self, String> {
                match value.as_str() {
                    Some(text) => $name::from_name(text)
                        .map(|v| Self(v as i32))
                        .ok_or_else(|| format!(" has the unknown value `{text}`")),
                    None => i32::from_json(value).map(Self),
                }
            }
        }
    )*};
}

by_name! {
    Assurance: aidl::Assurance::Assurance,
    Logical: aidl::Logical::Logical,
    Marker: aidl::Marker::Marker,
    Method: aidl::Method::Method,
    Physical: aidl::Physical::Physical,
    State: aidl::ResetState::ResetState,
    Verify: aidl::Verify::Verify,
}

/// `OK` is no error, so that [`Code`] has it not.
impl Json for aidl::ErrorCode::ErrorCode {
    fn to_json(&self) -> Value {
        match (self.0, Code::from_number(self.0)) {
            (0, _) => Value::from("OK"),
            (_, Some(code)) => Value::from(code.name()),
            (number, None) => Value::from(number),
        }
    }

    fn from_json(value: &Value) -> Result<Self, String> {
        match value.as_str() {
            Some("OK") => Ok(Self(0)),
            Some(text) => Code::from_name(text)
                .map(|code| Self(code as i32))
                .ok_or_else(|| format!(" has the unknown value `{text}`")),
            None => i32::from_json(value).map(Self),
        }
    }
}

/// Parcelables, field by field. A field that is forgotten here does not compile.
macro_rules! object {
    ($($aidl:path { $($field:ident,)* })*) => {$(
        impl Json for $aidl {
            fn to_json(&self) -> Value {
                let mut map = Map::new();
                $(map.insert(key(stringify!($field)), self.$field.to_json());)*
                Value::Object(map)
            }

            fn from_json(value: &Value) -> Result<Self, String> {
                Ok(Self { $($field: member(value, stringify!($field))?,)* })
            }
        }
    )*};
}

object! {
    aidl::ImageDevice::ImageDevice {
        name, node, loopNumber, backingFile, offsetBytes, sizeBytes, blockSizeBytes, readOnly,
        directIo, autoclear, ours,
    }
    aidl::MmcCommand::MmcCommand { index, argument, response, }
    aidl::StepTime::StepTime { step, micros, }
    aidl::ResetStatus::ResetStatus { state, step, elapsedMillis, message, markerPresent, }
    aidl::ResetTarget::ResetTarget {
        partition, node, startBytes, lengthBytes, headBytes, middleBytes, tailBytes,
        overwrittenBytes, eraseGroups, commands, omittedCommands, limitMillis, eraseCommands, kernelEraseCommands,
        modelMillis, kernelModelMillis, samples,
    }
    aidl::ResetPlan::ResetPlan {
        disk, cardName, cid, method, physical, assurance, eraseGroupBytes, erasedValue, verify,
        marker, attempt, sanitize, maxChunkBytes, targets, steps, notes,
    }
    aidl::TargetReport::TargetReport {
        partition, startBytes, erasedBytes, overwrittenBytes, commands, omittedCommands, eraseCommands, eraseMicros, canaries,
        canariesFound, samples, samplesWrong, neighbours, neighboursChanged, detectionProbability,
    }
    aidl::ResetReport::ResetReport {
        formatVersion, softwareVersion, token, startedUnixMillis, elapsedMillis, plan, targets,
        sanitizeCommands, logical, physical, assurance, formatNeeded, steps, warnings,
        error, message,
    }
}

#[cfg(test)]
mod tests;
