// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/transfer.hpp"

#include "base/copy.hpp"

namespace farandole {
namespace {

// From here on a message is not left in a cache. Two ranks on a CPU with 32 MiB of shared cache
// took 1.7 instead of 0.9 ms to gather 16 MiB past it, and 5.8 instead of 6.1 ms for 64 MiB.
constexpr std::size_t kStreamBytes = std::size_t{24} << 20;

}  // namespace

void Transfer::start() {
  state = TransferState::kActive;
  error = ErrorKind::kInternal;
  next = nullptr;
  moved = Bytes{0};
  handle = 0;
  phase = 0;
}

void Transfer::fail(ErrorKind kind) {
  error = kind;
  state = TransferState::kFailed;
}

void Receive::deliver(Bytes offset, const std::byte* data, Bytes length) {
  if (length.value() == 0) return;
  if (consume != nullptr) {
    consume(context, offset, data, length);
  } else {
    std::byte* to = target + offset.value();
    bytes.value() >= kStreamBytes ? copy_past_cache(to, data, length.value())
                                  : copy_bytes(to, data, length.value());
  }
}

}  // namespace farandole
