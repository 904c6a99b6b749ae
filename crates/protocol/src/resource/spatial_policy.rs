//! Checks the spatial indexes of a container against its geometry type.
//!
//! `geospatialConfig` says whether coordinates are on the globe (`Geography`, the default) or in a plane
//! (`Geometry`). A plane is unbounded, so each spatial index of a `Geometry` container needs a
//! `boundingBox`; one of a `Geography` container must have none. Nothing here builds an index or reads
//! an item.

use super::search_policy::{BadPolicy, list};
use serde_json::{Map, Value};

const TYPES: [&str; 4] = ["Point", "LineString", "Polygon", "MultiPolygon"];

/// Checks the spatial indexes of a definition.
///
/// # Errors
/// When the geometry type, a path, a type or a bounding box is not allowed.
pub fn check_spatial_indexes(definition: &Map<String, Value>) -> Result<(), BadPolicy> {
    let is_plane = is_plane(definition)?;
    for index in list(definition, "indexingPolicy", "spatialIndexes")? {
        let path = index.get("path").and_then(Value::as_str).unwrap_or_default();
        if path.len() < 2 || !path.starts_with('/') {
            return refuse(format!(
                "A spatial index has the path '{path}': name one such as '/location/*'."
            ));
        }
        check_types(path, index.get("types").unwrap_or(&Value::Null))?;
        match (is_plane, index.get("boundingBox").filter(|given| !given.is_null())) {
            (true, Some(given)) => check_box(path, given)?,
            (true, None) => {
                return refuse(format!(
                    "The spatial index of the path '{path}' has no boundingBox, which a container of the type \
                     Geometry requires: add one with xmin, ymin, xmax and ymax."
                ));
            }
            (false, Some(_)) => {
                return refuse(format!(
                    "The spatial index of the path '{path}' has a boundingBox, which a container of the type \
                     Geography must not have: remove it, or set the type in geospatialConfig to Geometry."
                ));
            }
            (false, None) => {}
        }
    }
    Ok(())
}

fn refuse<T>(message: String) -> Result<T, BadPolicy> {
    Err(BadPolicy(message))
}

/// Whether the container's coordinates are in a plane.
fn is_plane(definition: &Map<String, Value>) -> Result<bool, BadPolicy> {
    let config = definition.get("geospatialConfig").filter(|config| !config.is_null());
    let kind = match config {
        None => return Ok(false),
        Some(Value::Object(config)) => config.get("type").unwrap_or(&Value::Null),
        Some(other) => other,
    };
    match kind.as_str().unwrap_or_default() {
        kind if kind.eq_ignore_ascii_case("Geography") => Ok(false),
        kind if kind.eq_ignore_ascii_case("Geometry") => Ok(true),
        _ => refuse(format!(
            "The geospatialConfig has the type {kind}: set it to \"Geography\" or \"Geometry\"."
        )),
    }
}

fn check_types(path: &str, types: &Value) -> Result<(), BadPolicy> {
    let listed = match types {
        Value::Null => return Ok(()),
        Value::Array(listed) => listed.as_slice(),
        other => std::slice::from_ref(other),
    };
    let is_known = |one: &&Value| one.as_str().is_some_and(|one| is_one_of(one, &TYPES));
    match listed.iter().find(|one| !is_known(one)) {
        None if types.is_array() => Ok(()),
        unknown => refuse(format!(
            "The spatial index of the path '{path}' has the type {}: list any of {}.",
            unknown.unwrap_or(types),
            TYPES.join(", ")
        )),
    }
}

fn is_one_of(name: &str, known: &[&str]) -> bool {
    known.iter().any(|one| one.eq_ignore_ascii_case(name))
}

fn check_box(path: &str, given: &Value) -> Result<(), BadPolicy> {
    let bound = |name: &str| match given.get(name).and_then(Value::as_f64) {
        Some(bound) => Ok(bound),
        None => refuse(format!(
            "The boundingBox of the spatial index of the path '{path}' has no number '{name}'."
        )),
    };
    for (least, most) in [("xmin", "xmax"), ("ymin", "ymax")] {
        if bound(most)? <= bound(least)? {
            return refuse(format!(
                "The boundingBox of the spatial index of the path '{path}' has '{most}' not greater than '{least}'."
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(config: Value, index: Value, expected: Option<&str>) {
        let definition =
            json!({ "geospatialConfig": config, "indexingPolicy": { "spatialIndexes": [index] } });
        let checked = check_spatial_indexes(definition.as_object().unwrap());
        match (checked, expected) {
            (Ok(()), None) => {}
            (Err(error), Some(words)) => assert!(error.to_string().contains(words), "{error}"),
            (checked, _) => panic!("{definition}: {checked:?}"),
        }
    }

    fn plane() -> Value {
        json!({ "type": "Geometry" })
    }

    fn within(sides: [i32; 4]) -> Value {
        let [xmin, ymin, xmax, ymax] = sides;
        json!({ "path": "/at/*", "types": ["Point"],
            "boundingBox": { "xmin": xmin, "ymin": ymin, "xmax": xmax, "ymax": ymax } })
    }

    #[test]
    fn a_plane_needs_a_bounding_box_and_the_globe_must_have_none() {
        let bare =
            json!({ "path": "/at/*", "types": ["Point", "polygon", "LineString", "MultiPolygon"] });
        for config in [json!({ "type": "Geography" }), json!(null)] {
            check(config.clone(), bare.clone(), None);
            check(config, within([0, 0, 9, 9]), Some("must not have"));
        }
        check(plane(), bare, Some("has no boundingBox"));
        check(plane(), within([-9, -9, 9, 9]), None);
    }

    #[test]
    fn a_bounding_box_has_four_sides_in_order() {
        check(plane(), within([9, 0, 9, 9]), Some("'xmax' not greater than 'xmin'"));
        check(plane(), within([0, 9, 9, 0]), Some("'ymax' not greater than 'ymin'"));
        let open = json!({ "path": "/at/*", "boundingBox": { "xmin": 1, "xmax": 2, "ymin": "0" } });
        check(plane(), open, Some("no number 'ymax'"));
        check(plane(), json!({ "path": "/at/*", "boundingBox": [] }), Some("no number 'xmax'"));
    }

    #[test]
    fn types_and_paths_are_known_ones() {
        let of = |types: Value| json!({ "path": "/at/?", "types": types });
        check(json!(null), of(json!(["Point", "Circle"])), Some("\"Circle\""));
        check(json!(null), of(json!([7])), Some("7"));
        check(json!(null), of(json!("Point")), Some("\"Point\""));
        check(json!(null), of(json!([])), None);
        check(json!(null), json!({ "types": ["Point"] }), Some("has the path ''"));
        check(json!(null), json!({ "path": "at" }), Some("has the path 'at'"));
        check(json!({ "type": "Sphere" }), of(json!(["Point"])), Some("\"Sphere\""));
        check(json!("Geometry"), within([0, 0, 1, 1]), None);
    }
}
