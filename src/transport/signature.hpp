// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "bootstrap/wire.hpp"
#include "transport/transfer.hpp"

namespace farandole {

/// The bytes that a signature takes in a message.
inline constexpr std::size_t kSignatureBytes = 16;

void write(Writer& writer, const Signature& signature);
/// Reads every value of each field as it is: a library that knows other collectives may have
/// written it. describe() reports what is unknown here.
Signature read_signature(Reader& reader);

}  // namespace farandole
