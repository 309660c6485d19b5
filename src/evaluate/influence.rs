//! How uncertain a figure is that holds positives against negatives, from what each patient adds to it.

/// What one patient adds, of each class.
#[derive(Debug, Clone, Copy)]
pub(super) struct Influence {
    /// The deviations of the patient's images, summed, over how many images of all patients there are.
    pub deviations: [f64; 2],
    /// The share of the images of all patients that are the patient's.
    pub shares: [f64; 2],
}

/// A variance that is right on average for patients of different numbers of images, and how well it is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    pub variance: f64,
    /// By Welch (1947), of a sum of two variances, which Brunner and Munzel (2000, "The Nonparametric Behrens-Fisher
    /// Problem") take so for an AUROC.
    pub freedom: f64,
}

impl Influence {
    /// The patient's deviation of both classes together.
    ///
    /// What is found of all patients lies towards those of many images, who therefore seem to deviate too little: a
    /// patient with the share h of the images by √(1 − h) (Bell and McCaffrey 2002, "Bias Reduction in Standard Errors for
    /// Linear Regression with Multi-Stage Samples", whose CR2 this is). Where all patients have as many images, this is
    /// Obuchowski's correction, I / (I − 1).
    pub fn deviation(&self) -> f64 {
        self.of_class(0) + self.of_class(1)
    }

    fn of_class(&self, class: usize) -> f64 {
        let rest = 1.0 - self.shares[class];
        // A patient without images of the class has no deviation of it; one with all of them, a class of one patient.
        if rest > 0.0 { self.deviations[class] / rest.sqrt() } else { 0.0 }
    }
}

impl Spread {
    /// `None` where one class is of fewer than two patients.
    pub fn of(influences: &[Influence]) -> Option<Self> {
        let parts = [0, 1].map(|class| {
            let patients = influences.iter().filter(|one| one.shares[class] > 0.0).count();
            let squares = influences.iter().map(|one| one.of_class(class).powi(2));
            (squares.sum::<f64>(), patients)
        });
        if parts.iter().any(|(_, patients)| *patients < 2) {
            return None;
        }
        let sum: f64 = parts.iter().map(|(part, _)| part).sum();
        let squares = parts.iter().map(|(part, patients)| part * part / (patients - 1) as f64);
        let variance = influences.iter().map(|one| one.deviation().powi(2)).sum();
        Some(Self { variance, freedom: sum * sum / squares.sum::<f64>() })
    }
}
