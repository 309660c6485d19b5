"""Makes the folder `hospital/` of docs/tutorial.md: drawn radiographs, every second one as DICOM, and a table.

Made with numpy 2.4.6, Pillow 13.0.0 and pydicom 3.0.2 (pip install numpy pillow pydicom).

    trainer data phantom --out drawn --patients 300 --size 128 --seed 7
    python benches/hospital.py drawn hospital
"""
import csv
import pathlib
import sys

import numpy
import pydicom
from PIL import Image
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, generate_uid

LABELS = ["Cardiomegaly", "Pleural Effusion", "Support Devices"]
DIGITAL_X_RAY = "1.2.840.10008.5.1.4.1.1.1.1"


def write_dicom(path, pixels, row, patient):
    """A digital radiograph of 16 bits with the attributes that scanners write, `pixels` as they are."""
    uid = generate_uid(entropy_srcs=[path.name])
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = DIGITAL_X_RAY
    meta.MediaStorageSOPInstanceUID = uid
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    image = FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
    image.SOPClassUID, image.SOPInstanceUID, image.Modality = DIGITAL_X_RAY, uid, "DX"
    image.PatientID, image.PatientSex = patient, row["Sex"][0]
    image.PhotometricInterpretation, image.SamplesPerPixel = "MONOCHROME2", 1
    image.BitsAllocated, image.BitsStored, image.HighBit, image.PixelRepresentation = 16, 16, 15, 0
    image.Rows, image.Columns = pixels.shape
    image.PixelData = pixels.astype("<u2").tobytes()
    image.save_as(path, enforce_file_format=True)


def main(drawn, hospital):
    images = hospital / "images"
    images.mkdir(parents=True)
    with open(drawn / "train.csv", newline="") as table, open(hospital / "findings.csv", "w", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["file", "patient", "sex", "age", *LABELS])
        for number, row in enumerate(csv.DictReader(table)):
            source, patient = drawn / row["Path"], row["Path"].split("/")[1]
            name = f"{number:04}.{'dcm' if number % 2 else 'png'}"
            if number % 2:
                pixels = numpy.array(Image.open(source)).astype(numpy.uint16)
                write_dicom(images / name, pixels, row, patient)
            else:
                (images / name).write_bytes(source.read_bytes())
            labels = [row[label] for label in LABELS]
            writer.writerow([f"images/{name}", patient, row["Sex"], row["Age"], *labels])


if __name__ == "__main__":
    main(*map(pathlib.Path, sys.argv[1:]))
