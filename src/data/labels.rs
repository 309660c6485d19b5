//! Vocabulary.

/// CheXpert's label columns, in its order (Irvin et al. 2019, arXiv:1901.07031).
pub const FINDINGS: [&str; 14] = [
    "No Finding",
    "Enlarged Cardiomediastinum",
    "Cardiomegaly",
    "Lung Opacity",
    "Lung Lesion",
    "Edema",
    "Consolidation",
    "Pneumonia",
    "Atelectasis",
    "Pneumothorax",
    "Pleural Effusion",
    "Pleural Other",
    "Fracture",
    "Support Devices",
];
