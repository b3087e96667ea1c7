// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "bootstrap/wire.hpp"
#include "transport/transfer.hpp"

namespace farandole {

/// A signature takes so many bytes in a message.
inline constexpr std::size_t kSignatureBytes = 16;

void write(Writer& writer, const Signature& signature);
/// Every value of each field is read as it is: a library that knows other collectives may have
/// written it, and describe() says so in words.
Signature read_signature(Reader& reader);

}  // namespace farandole
