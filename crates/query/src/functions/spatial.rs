//! Shapes on the earth, as GeoJSON: points, lines, polygons and multi-polygons in WGS-84.
//!
//! Areas and distances follow the ellipsoid and are in square metres and metres. Containment and
//! crossing treat longitude and latitude as a plane, which differs from great circles only
//! for edges of hundreds of kilometres. For invalid GeoJSON the result is undefined.

use geo::algorithm::Validation;
use geo::line_measures::Distance;
use geo::{
    Closest, ClosestPoint, Coord, CoordsIter, Geodesic, GeodesicArea, Geometry, Intersects,
    LineString, MapCoords, MultiPolygon, Point, Polygon, Within,
};

use super::{Body, Function};
use crate::error::EvaluationError;
use crate::evaluate::Environment;
use crate::value::Value;

/// The most positions of one shape.
const POSITIONS_MAX: usize = 50_000;
/// The most positions of a polygon, or of all polygons of a shape. Checking them compares every pair of
/// edges, takes about 12 ns for a pair and cannot be interrupted.
const POLYGON_POSITIONS_MAX: usize = 2_800;
/// Pairs of edges of a polygon checked for the cost of a step.
const CHECKED_PER_STEP: usize = 8;
/// The most pairs of positions of two shapes compared, at about 17 ns for a pair.
const PAIRS_MAX: usize = 6_000_000;
/// Pairs of positions compared for the cost of a step.
const COMPARED_PER_STEP: usize = 6;

macro_rules! point {
    ($x:literal, $y:literal) => {
        concat!("{type: \"Point\", coordinates: [", $x, ", ", $y, "]}")
    };
}

macro_rules! square {
    () => {
        "{type: \"Polygon\", coordinates: [[[0, 0], [10, 0], [10, 10], [0, 10], [0, 0]]]}"
    };
}

pub(super) const TABLE: &[Function] = &[
    Function {
        name: "ST_AREA",
        arguments: "(shape)",
        meaning: "The area of a polygon in square metres, 0 for points and lines",
        count: (1, 1),
        body: Body::Careful(|arguments, environment| {
            let Ok(shape) = check("ST_AREA", &arguments[0], environment)? else { return Ok(None) };
            environment.spend(shape.coords_count())?;
            Ok(Some(Value::number(shape.geodesic_area_unsigned().abs())))
        }),
        examples: &[
            (concat!("ROUND(ST_AREA(", square!(), ") / 1e9)"), "1228"),
            (concat!("ST_AREA(", point!("1", "2"), ")"), "0"),
            ("ST_AREA({})", "undefined"),
        ],
    },
    Function {
        name: "ST_DISTANCE",
        arguments: "(shape, shape)",
        meaning: "The shortest distance between two shapes in metres, 0 if they touch",
        count: (2, 2),
        body: Body::Careful(|arguments, environment| {
            let Some([one, two]) = shapes("ST_DISTANCE", arguments, environment)? else {
                return Ok(None);
            };
            Ok(Some(Value::number(distance(&one, &two, environment)?)))
        }),
        examples: &[
            (
                concat!("ROUND(ST_DISTANCE(", point!("0", "0"), ", ", point!("1", "0"), "))"),
                "111319",
            ),
            (concat!("ST_DISTANCE(", point!("5", "5"), ", ", square!(), ")"), "0"),
            (concat!("ROUND(ST_DISTANCE(", point!("11", "0"), ", ", square!(), "))"), "111319"),
            ("ST_DISTANCE(1, 2)", "undefined"),
        ],
    },
    Function {
        name: "ST_INTERSECTS",
        arguments: "(shape, shape)",
        meaning: "Whether two shapes have a point in common",
        count: (2, 2),
        body: Body::Careful(|arguments, environment| {
            let Some([one, two]) = shapes("ST_INTERSECTS", arguments, environment)? else {
                return Ok(None);
            };
            Ok(Some(Value::Bool(one.intersects(&two))))
        }),
        examples: &[
            (
                concat!(
                    "ST_INTERSECTS({type: \"LineString\", coordinates: [[-1, 5], [1, 5]]}, ",
                    square!(),
                    ")"
                ),
                "true",
            ),
            (concat!("ST_INTERSECTS(", point!("20", "5"), ", ", square!(), ")"), "false"),
        ],
    },
    Function {
        name: "ST_ISVALID",
        arguments: "(shape)",
        meaning: "Whether it is a valid GeoJSON shape",
        count: (1, 1),
        body: Body::Careful(|arguments, environment| {
            Ok(Some(Value::Bool(check("ST_ISVALID", &arguments[0], environment)?.is_ok())))
        }),
        examples: &[
            (concat!("ST_ISVALID(", point!("31.9", "-4.8"), ")"), "true"),
            (concat!("ST_ISVALID(", point!("31.9", "-132.8"), ")"), "false"),
            ("ST_ISVALID({type: \"Polygon\", coordinates: [[[0, 0], [1, 0], [1, 1]]]})", "false"),
            ("ST_ISVALID(1)", "false"),
        ],
    },
    Function {
        name: "ST_ISVALIDDETAILED",
        arguments: "(shape)",
        meaning: "Whether it is a valid GeoJSON shape, and if not, why",
        count: (1, 1),
        body: Body::Careful(|arguments, environment| {
            let problem = check("ST_ISVALIDDETAILED", &arguments[0], environment)?.err();
            let mut members = vec![("valid".into(), Value::Bool(problem.is_none()))];
            members.extend(problem.map(|reason| ("reason".into(), Value::from(reason))));
            Ok(Some(Value::object(members)))
        }),
        examples: &[
            (concat!("ST_ISVALIDDETAILED(", point!("1", "2"), ")"), "{\"valid\":true}"),
            (
                concat!("ST_ISVALIDDETAILED(", point!("31.9", "-132.8"), ")"),
                "{\"valid\":false,\"reason\":\"Latitude values must be between -90 and 90 degrees.\"}",
            ),
        ],
    },
    Function {
        name: "ST_WITHIN",
        arguments: "(shape, shape)",
        meaning: "Whether the first shape lies inside the second",
        count: (2, 2),
        body: Body::Careful(|arguments, environment| {
            let Some([one, two]) = shapes("ST_WITHIN", arguments, environment)? else {
                return Ok(None);
            };
            Ok(Some(Value::Bool(one.is_within(&two))))
        }),
        examples: &[
            (concat!("ST_WITHIN(", point!("5", "5"), ", ", square!(), ")"), "true"),
            (concat!("ST_WITHIN(", point!("15", "5"), ", ", square!(), ")"), "false"),
            (concat!("ST_WITHIN(", square!(), ", ", square!(), ")"), "true"),
            ("ST_WITHIN({}, {})", "undefined"),
        ],
    },
];

/// Two comparable shapes, charged for one comparison; `None` if an argument is not a valid shape.
fn shapes(
    function: &'static str,
    arguments: &[Value<'_>],
    environment: &mut Environment,
) -> Result<Option<[Geometry; 2]>, EvaluationError> {
    let [one, two] = arguments else { return Ok(None) };
    let one = check(function, one, environment)?.ok();
    let two = check(function, two, environment)?.ok();
    let Some((one, two)) = one.zip(two) else { return Ok(None) };
    let counts = (one.coords_count(), two.coords_count());
    let pairs = counts.0.saturating_mul(counts.1);
    if pairs > PAIRS_MAX {
        let (one, two) = counts;
        return Err(EvaluationError::ShapesTooLarge { function, one, two, limit: PAIRS_MAX });
    }
    environment.spend(pairs.div_ceil(COMPARED_PER_STEP))?;
    Ok(Some([one, two]))
}

/// Checks a shape, or returns why it is invalid.
fn check(
    function: &'static str,
    value: &Value<'_>,
    environment: &mut Environment,
) -> Result<Result<Geometry, &'static str>, EvaluationError> {
    let mut reader = Reader { positions: 0 };
    let shape = reader.shape(value);
    let positions = reader.positions;
    environment.spend(positions.saturating_mul(8))?;
    let limit = match &shape {
        Ok(Geometry::Polygon(_) | Geometry::MultiPolygon(_)) => POLYGON_POSITIONS_MAX,
        _ => POSITIONS_MAX,
    };
    if positions > limit {
        return Err(EvaluationError::ShapeTooLarge { function, positions, limit });
    }
    if limit == POLYGON_POSITIONS_MAX {
        environment.spend(positions * positions / CHECKED_PER_STEP)?;
    }
    Ok(shape.and_then(|shape| match shape.is_valid() {
        true => Ok(shape),
        false => Err("The shape crosses or touches itself."),
    }))
}

struct Reader {
    positions: usize,
}

impl Reader {
    fn shape(&mut self, value: &Value<'_>) -> Result<Geometry, &'static str> {
        let coordinates = value.member("coordinates");
        match value.member("type").as_text() {
            Some("Point") => Ok(Geometry::Point(Point(self.position(&coordinates)?))),
            Some("LineString") => {
                let line = self.line(&coordinates)?;
                if line.0.len() < 2 {
                    return Err("A LineString must have at least two positions.");
                }
                Ok(Geometry::LineString(line))
            }
            Some("Polygon") => Ok(Geometry::Polygon(self.polygon(&coordinates)?)),
            Some("MultiPolygon") => {
                let polygons = coordinates.elements().ok_or("The coordinates must be an array.")?;
                let polygons = polygons.iter().map(|one| self.polygon(one));
                Ok(Geometry::MultiPolygon(MultiPolygon(polygons.collect::<Result<_, _>>()?)))
            }
            Some(_) => Err("The type must be Point, LineString, Polygon or MultiPolygon."),
            None => Err("The shape must be a GeoJSON object with a type."),
        }
    }

    fn polygon(&mut self, value: &Value<'_>) -> Result<Polygon, &'static str> {
        let rings = value.elements().ok_or("A Polygon must have an array of rings.")?;
        let mut lines = Vec::with_capacity(rings.len().min(64));
        for ring in rings.iter() {
            let line = self.line(ring)?;
            if line.0.len() < 4 || line.0.first() != line.0.last() {
                return Err("A ring must have at least four positions and end where it began.");
            }
            lines.push(line);
        }
        if lines.is_empty() {
            return Err("A Polygon must have at least one ring.");
        }
        let outer = lines.remove(0);
        Ok(Polygon::new(outer, lines))
    }

    fn line(&mut self, value: &Value<'_>) -> Result<LineString, &'static str> {
        let positions = value.elements().ok_or("The coordinates must be arrays of positions.")?;
        let positions = positions.iter().map(|one| self.position(one));
        Ok(LineString(positions.collect::<Result<_, _>>()?))
    }

    fn position(&mut self, value: &Value<'_>) -> Result<Coord, &'static str> {
        self.positions += 1;
        if self.positions > POSITIONS_MAX {
            return Err("The shape has too many positions.");
        }
        let (x, y) = (value.element(0).as_number(), value.element(1).as_number());
        let (Some(x), Some(y)) = (x, y) else {
            return Err("A position must be an array of at least two numbers.");
        };
        if !(-180.0..=180.0).contains(&x) {
            return Err("Longitude values must be between -180 and 180 degrees.");
        }
        if !(-90.0..=90.0).contains(&y) {
            return Err("Latitude values must be between -90 and 90 degrees.");
        }
        Ok(Coord { x, y })
    }
}

/// Metres between the two nearest positions. They are found on a plane with degrees of longitude scaled to
/// their length there, and measured on the ellipsoid.
fn distance(
    one: &Geometry,
    two: &Geometry,
    environment: &mut Environment,
) -> Result<f64, EvaluationError> {
    if let (Geometry::Point(one), Geometry::Point(two)) = (one, two) {
        return Ok(Geodesic.distance(*one, *two));
    }
    if one.intersects(two) {
        return Ok(0.0);
    }
    let shrink = latitude(one, two).to_radians().cos().max(1e-3);
    let scaled = |shape: &Geometry| shape.map_coords(|at| Coord { x: at.x * shrink, y: at.y });
    let real = |at: Point| Point::new(at.x() / shrink, at.y());
    let (one, two) = (scaled(one), scaled(two));
    let mut nearest = f64::INFINITY;
    for (from, to) in [(&one, &two), (&two, &one)] {
        let positions = to.coords_count();
        for position in from.coords_iter() {
            environment.spend(1 + positions / 2)?;
            let start = Point(position);
            let end = match to.closest_point(&start) {
                Closest::Intersection(point) | Closest::SinglePoint(point) => point,
                Closest::Indeterminate => continue,
            };
            nearest = nearest.min(Geodesic.distance(real(start), real(end)));
        }
    }
    Ok(nearest)
}

/// The mean latitude of two shapes.
#[expect(clippy::cast_precision_loss, reason = "shapes have few positions")]
fn latitude(one: &Geometry, two: &Geometry) -> f64 {
    let positions = one.coords_count() + two.coords_count();
    one.coords_iter().chain(two.coords_iter()).map(|at| at.y).sum::<f64>() / positions.max(1) as f64
}
