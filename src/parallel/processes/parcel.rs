//! Several named pieces of data in one message.

/// Puts pieces together.
pub fn pack<'a>(parts: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Vec<u8> {
    let mut parcel = Vec::new();
    for (name, bytes) in parts {
        for part in [name.as_bytes(), bytes] {
            parcel.extend((part.len() as u64).to_le_bytes());
            parcel.extend(part);
        }
    }
    parcel
}

/// Takes a [packed](pack) parcel apart; `None` where it is none.
pub fn unpack(mut parcel: &[u8]) -> Option<Vec<(String, Vec<u8>)>> {
    let mut parts = Vec::new();
    while !parcel.is_empty() {
        let mut part = || -> Option<Vec<u8>> {
            let (length, rest) = parcel.split_first_chunk::<8>()?;
            let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
            let (part, rest) = rest.split_at_checked(length)?;
            parcel = rest;
            Some(part.to_vec())
        };
        parts.push((String::from_utf8(part()?).ok()?, part()?));
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked_and_nothing_else_is() {
        let parts = [("weights", &[1, 2, 3][..]), ("", &[]), ("ü", &[0; 40])];
        let parcel = pack(parts);
        let found = unpack(&parcel).expect("is one");
        let found: Vec<_> = found.iter().map(|(name, bytes)| (name.as_str(), &bytes[..])).collect();
        assert_eq!(found, parts);
        assert_eq!(unpack(&[]), Some(Vec::new()));
        let whole = |length: &usize| unpack(&parcel[..*length]).is_some();
        let ends: Vec<usize> = (0..=parcel.len()).filter(whole).collect();
        assert_eq!(ends, [0, 26, 42, parcel.len()]);
        assert_eq!(unpack(&[255; 30]), None);
    }
}
