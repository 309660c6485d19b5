//! The kinds of data sets that are drawn.

use statrs::distribution::{ContinuousCDF, Normal};

/// How data sets are drawn.
#[derive(Clone)]
pub struct Kind {
    pub name: String,
    pub patients: usize,
    pub most_images: usize,
    /// The share of positives.
    pub positive: f64,
    /// Whether all images of a patient have one truth.
    pub ill: bool,
    /// Of the first model and the second.
    pub aurocs: [f64; 2],
    /// How much scores of positives spread by each model, where those of negatives spread by 1.
    pub spreads: [f64; 2],
    /// Whether errors of numbers have Laplace's distribution, and not the normal one.
    pub laplace: bool,
}

impl Kind {
    fn ill(self) -> Self {
        Self { ill: true, ..self }
    }

    /// The same with an AUROC of 0.95.
    fn high(self) -> Self {
        Self { aurocs: [0.95; 2], ..self }
    }

    /// By how much positives lie higher by each model.
    pub fn shifts(&self) -> [f64; 2] {
        [0, 1].map(|model| {
            Normal::standard().inverse_cdf(self.aurocs[model]) * 1_f64.hypot(self.spreads[model])
        })
    }
}

fn kind(name: &str, patients: usize, most_images: usize, positive: f64) -> Kind {
    let (name, aurocs, spreads) = (name.to_owned(), [0.8; 2], [1.0; 2]);
    Kind { name, patients, most_images, positive, ill: false, aurocs, spreads, laplace: false }
}

pub fn some() -> Vec<Kind> {
    vec![
        kind("200 patients of 1 image, 50% positive", 200, 1, 0.5),
        kind("500 patients of 1 image, 10% positive", 500, 1, 0.1),
        kind("200 patients of 1 image, 30% positive, AUROC 0.95", 200, 1, 0.3).high(),
        kind("200 patients of 1 to 5 images, 30% positive", 200, 5, 0.3),
        kind("200 patients of 1 to 5 images, 30% ill", 200, 5, 0.3).ill(),
        kind("200 patients of 1 to 5 images, 30% ill, AUROC 0.95", 200, 5, 0.3).ill().high(),
        kind("1000 patients of 1 image, 2% positive", 1000, 1, 0.02),
        kind("1000 patients of 1 to 5 images, 5% ill", 1000, 5, 0.05).ill(),
        kind("40 patients of 1 image, 50% positive", 40, 1, 0.5),
        kind("60 patients of 1 to 5 images, 30% ill", 60, 5, 0.3).ill(),
        kind("30 patients of 1 to 5 images, 30% ill", 30, 5, 0.3).ill(),
        kind("60 patients of 1 image, 30% positive, AUROC 0.95", 60, 1, 0.3).high(),
    ]
}

/// Every combination of the grid. Fewer than nine patients with positives are too few to say much.
pub fn grid() -> Vec<Kind> {
    let sizes = [(30, 0.3), (30, 0.5), (60, 0.3), (60, 0.5), (100, 0.1), (100, 0.3), (100, 0.5)];
    let sizes = sizes.into_iter().chain([(300, 0.05), (300, 0.1), (300, 0.3), (300, 0.5)]);
    let shapes = [(1, true, "1 image"), (5, false, "1 to 5 images"), (5, true, "1 to 5, ill")];
    let mut kinds = Vec::new();
    for (patients, positive) in sizes {
        for (most_images, ill, images) in shapes {
            for auroc in [0.7, 0.8, 0.9, 0.95] {
                let share = 100.0 * positive;
                let name = format!("{patients} of {images}, {share:.0}%, {auroc}");
                let kind = kind(&name, patients, most_images, positive);
                kinds.push(Kind { ill, aurocs: [auroc; 2], ..kind });
            }
        }
    }
    kinds
}

/// Two models with different AUROCs, or whose positives spread in different ways.
pub fn of_two_models() -> Vec<Kind> {
    let sizes = [(60, 1, 0.3), (30, 1, 0.3), (30, 5, 0.3), (100, 1, 0.1), (100, 5, 0.1)];
    let sizes = sizes.into_iter().chain([(300, 1, 0.05), (300, 5, 0.3), (40, 5, 0.1)]);
    let differ = [[0.95, 0.9], [0.9, 0.8], [0.95, 0.8], [0.8, 0.6], [0.95, 0.7]];
    let differ = differ.map(|aurocs| (aurocs, [1.0; 2]));
    let spreads = [[1.5, 1.5], [1.0, 1.5], [1.0, 2.0], [2.0, 2.0], [0.7, 0.7]];
    let equal = [0.8, 0.95].map(|auroc| spreads.map(|spreads| ([auroc; 2], spreads)));
    let forms: Vec<_> = differ.into_iter().chain(equal.into_iter().flatten()).collect();
    let kinds = sizes.flat_map(|(patients, most_images, positive)| {
        forms.iter().map(move |&(aurocs, spreads)| {
            let images = if most_images == 1 { "1 image" } else { "1 to 5, ill" };
            let ([first, second], share) = (aurocs, 100.0 * positive);
            let [of_first, of_second] = spreads;
            let name = format!(
                "{patients} of {images}, {share:.0}%, {first} and {second}, spread {of_first} and {of_second}"
            );
            let kind = kind(&name, patients, most_images, positive);
            Kind { ill: most_images > 1, aurocs, spreads, ..kind }
        })
    });
    kinds.collect()
}

/// Those of five labels; the last have four to six positives on average.
pub fn of_labels() -> Vec<Kind> {
    vec![
        kind("500 patients of 1 image, 10% positive", 500, 1, 0.1),
        kind("300 patients of 1 image, 5% positive, AUROC 0.95", 300, 1, 0.05).high(),
        kind("200 patients of 1 image, 30% positive, AUROC 0.95", 200, 1, 0.3).high(),
        kind("200 patients of 1 to 5 images, 30% ill", 200, 5, 0.3).ill(),
        kind("200 patients of 1 to 5 images, 30% ill, AUROC 0.95", 200, 5, 0.3).ill().high(),
        kind("100 patients of 1 image, 10% positive", 100, 1, 0.1),
        kind("100 patients of 1 to 5 images, 10% ill", 100, 5, 0.1).ill(),
        kind("60 patients of 1 image, 30% positive, AUROC 0.95", 60, 1, 0.3).high(),
        kind("60 patients of 1 to 5 images, 30% ill", 60, 5, 0.3).ill(),
        kind("40 patients of 1 image, 50% positive", 40, 1, 0.5),
        kind("30 patients of 1 image, 30% positive", 30, 1, 0.3),
        kind("30 patients of 1 to 5 images, 30% ill", 30, 5, 0.3).ill(),
        kind("120 patients of 1 image, 5% positive", 120, 1, 0.05),
        kind("40 patients of 1 image, 10% positive", 40, 1, 0.1),
        kind("40 patients of 1 to 5 images, 10% ill, AUROC 0.95", 40, 5, 0.1).ill().high(),
    ]
}

pub fn of_numbers() -> Vec<Kind> {
    let mut kinds = Vec::new();
    for (laplace, errors) in [(false, ""), (true, ", Laplace errors")] {
        for (patients, most) in [(200, 1), (200, 5), (60, 1), (60, 5), (30, 1), (30, 5), (20, 1)] {
            let images = if most == 1 { "1 image" } else { "1 to 5 images" };
            let name = format!("{patients} patients of {images}{errors}");
            kinds.push(Kind { laplace, ..kind(&name, patients, most, 0.5) });
        }
    }
    kinds
}
