//! What a run tells: progress, JSONL, TensorBoard, the closing table; one file a format.
