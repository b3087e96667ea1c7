// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <random>
#include <string>

namespace farandole::test {

/// Something that no member would say: random bytes, a handshake cut short, a proof that proves
/// nothing, lengths that promise too much, a request of another protocol, or nothing at all.
std::string nonsense(std::mt19937& random);

/// Connects to the loopback port, says `bytes`, and hangs up, at once or by going away without
/// reading. Whether anybody listens does not matter.
void intrude(std::uint16_t port, const std::string& bytes);

}  // namespace farandole::test
