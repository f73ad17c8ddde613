//! Signatures made with P-521, the curve of Terraform's client certificates, which ring does not know.

use p521::ecdsa::signature::Verifier as _;
use p521::ecdsa::{DerSignature, VerifyingKey};
use rustls_pki_types::{AlgorithmIdentifier, InvalidSignature, SignatureVerificationAlgorithm, alg_id};

/// ECDSA with P-521 and SHA-512.
#[derive(Debug)]
pub(crate) struct P521Sha512;

impl SignatureVerificationAlgorithm for P521Sha512 {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        let key = VerifyingKey::from_sec1_bytes(public_key).map_err(|_| InvalidSignature)?;
        let signature = DerSignature::try_from(signature).map_err(|_| InvalidSignature)?;
        key.verify(message, &signature).map_err(|_| InvalidSignature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::ECDSA_P521
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::ECDSA_SHA512
    }
}

#[cfg(test)]
mod tests {
    use p521::ecdsa::SigningKey;
    use p521::ecdsa::signature::Signer as _;

    use super::*;

    /// Public key and signature of a message, by the key whose number is `seed` repeated.
    fn signed(seed: u8, message: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let mut secret = [seed; 66];
        secret[0] = 0;
        let key = SigningKey::from_slice(&secret).unwrap();
        let signature: DerSignature = key.sign(message);
        let public = VerifyingKey::from(&key).to_sec1_point(false).as_bytes().to_vec();
        (public, signature.as_bytes().to_vec())
    }

    #[test]
    fn a_signature_counts_for_its_key_and_message_only() {
        let (key, signature) = signed(1, b"hello");
        let (other, _) = signed(2, b"hello");
        let verify = |key: &[u8], message: &[u8], signature: &[u8]| {
            P521Sha512.verify_signature(key, message, signature).is_ok()
        };
        assert!(verify(&key, b"hello", &signature));
        assert!(!verify(&other, b"hello", &signature));
        assert!(!verify(&key, b"hallo", &signature));
        let mut broken = signature.clone();
        *broken.last_mut().unwrap() ^= 1;
        assert!(!verify(&key, b"hello", &broken));
        assert!(!verify(&key[..100], b"hello", &signature));
        assert!(!verify(&key, b"hello", &signature[..20]));
        assert!(!verify(&key, b"hello", &[]));
    }
}
