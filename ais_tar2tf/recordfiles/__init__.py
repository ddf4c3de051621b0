"""Record files (TFRecord, ArrayRecord, tar): exported, verified, packed from folders, and read back."""
