//! Parts of the images that are evaluated by themselves.

use crate::data::Targets;
use crate::metric::HeadPredictions;

/// Images that have something in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// What they have in common: a column's value, or a band such as `40-60`.
    pub name: String,
    /// Their places among the images, ascending.
    pub images: Vec<usize>,
}

/// The name of the group of images of which nothing is known.
const UNKNOWN: &str = "unknown";

/// Groups images by a column of text, in the order of the text; images with an empty field are last,
/// as `unknown`.
pub fn groups<'a>(column: impl IntoIterator<Item = &'a str>) -> Vec<Group> {
    let named = column.into_iter().map(|field| if field.is_empty() { UNKNOWN } else { field });
    let mut groups = std::collections::BTreeMap::<&str, Vec<usize>>::new();
    for (image, name) in named.enumerate() {
        groups.entry(name).or_default().push(image);
    }
    let unknown = groups.remove_entry(UNKNOWN);
    let group = |(name, images): (&str, Vec<usize>)| Group { name: name.to_owned(), images };
    groups.into_iter().chain(unknown).map(group).collect()
}

/// Bands of a number such as age, cut at ascending edges.
#[derive(Debug, Clone, PartialEq)]
pub struct Bands {
    edges: Vec<f64>,
}

impl Bands {
    /// Bands that begin at `edges`, and one below the first; `None` unless the edges are finite and
    /// ascend.
    pub fn new(edges: &[f64]) -> Option<Self> {
        let ascend = edges.windows(2).all(|pair| pair[0] < pair[1]);
        let finite = edges.iter().all(|edge| edge.is_finite());
        (!edges.is_empty() && ascend && finite).then(|| Self { edges: edges.to_vec() })
    }

    /// Groups images by the band of their number, from the lowest band up. A band has its lower edge
    /// and not its upper one: with edges 40 and 60 the bands are `<40`, `40-60` and `>=60`. Images
    /// whose number is NaN are last, as `unknown`; bands without an image are left out.
    pub fn groups(&self, numbers: &[f64]) -> Vec<Group> {
        let mut images = vec![Vec::new(); self.edges.len() + 2];
        for (image, &number) in numbers.iter().enumerate() {
            let band = match number.is_nan() {
                true => self.edges.len() + 1,
                false => self.edges.partition_point(|&edge| edge <= number),
            };
            images[band].push(image);
        }
        let groups = images.into_iter().enumerate();
        groups
            .map(|(band, images)| Group { name: self.name(band), images })
            .filter(|group| !group.images.is_empty())
            .collect()
    }

    fn name(&self, band: usize) -> String {
        match (band.checked_sub(1).and_then(|below| self.edges.get(below)), self.edges.get(band)) {
            (None, Some(high)) => format!("<{high}"),
            (Some(low), Some(high)) => format!("{low}-{high}"),
            (Some(low), None) => format!(">={low}"),
            (None, None) => UNKNOWN.to_owned(),
        }
    }
}

/// The predictions for some of the images, in the order of `images`.
///
/// # Panics
/// If a place is beyond the images.
pub fn part(predictions: &HeadPredictions, images: &[usize]) -> HeadPredictions {
    let rows = |values: &[f32], width: usize| -> Vec<f32> {
        let row = |&image: &usize| values[image * width..(image + 1) * width].iter().copied();
        images.iter().flat_map(row).collect()
    };
    let width = predictions.targets.width;
    HeadPredictions {
        task: predictions.task,
        labels: predictions.labels.clone(),
        outputs: rows(&predictions.outputs, predictions.labels.len()),
        targets: Targets {
            values: rows(&predictions.targets.values, width),
            mask: rows(&predictions.targets.mask, width),
            width,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(groups: &[Group]) -> Vec<(&str, &[usize])> {
        groups.iter().map(|group| (group.name.as_str(), &group.images[..])).collect()
    }

    #[test]
    fn a_column_makes_a_group_of_each_text_and_one_of_the_empty_fields() {
        let groups = groups(["M", "", "F", "M", "x"]);
        let expected: [(&str, &[usize]); 4] =
            [("F", &[2]), ("M", &[0, 3]), ("x", &[4]), ("unknown", &[1])];
        assert_eq!(shown(&groups), expected);
    }

    #[test]
    fn a_band_has_its_lower_edge() {
        let bands = Bands::new(&[40.0, 60.0, 62.5]).expect("ascending");
        let groups = bands.groups(&[39.9, 40.0, 60.0, f64::NAN, 90.0, 59.0, 62.5]);
        let expected: [(&str, &[usize]); 5] = [
            ("<40", &[0]),
            ("40-60", &[1, 5]),
            ("60-62.5", &[2]),
            (">=62.5", &[4, 6]),
            ("unknown", &[3]),
        ];
        assert_eq!(shown(&groups), expected);
        for edges in [&[][..], &[2.0, 1.0], &[1.0, 1.0], &[f64::NAN], &[f64::INFINITY]] {
            assert_eq!(Bands::new(edges), None);
        }
    }
}
