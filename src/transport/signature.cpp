// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/signature.hpp"

namespace farandole {

void write(Writer& writer, const Signature& signature) {
  writer.u8(signature.collective).u8(signature.dtype).u8(signature.reduction);
  writer.u8(signature.algorithm).i32(signature.root).u64(signature.count);
}

Signature read_signature(Reader& reader) {
  Signature signature;
  signature.collective = reader.u8();
  signature.dtype = reader.u8();
  signature.reduction = reader.u8();
  signature.algorithm = reader.u8();
  signature.root = reader.i32();
  signature.count = reader.u64();
  return signature;
}

}  // namespace farandole
