// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/transfer.hpp"

#include "device/cpu/copy.hpp"

namespace farandole {

void Transfer::fail(ErrorKind kind) {
  error = kind;
  state = TransferState::kFailed;
}

void Receive::deliver(Bytes offset, const std::byte* data, Bytes length) {
  if (length.value() == 0) return;
  if (consume != nullptr) {
    consume(context, offset, data, length);
  } else {
    copy_bytes(target + offset.value(), data, length.value());
  }
}

}  // namespace farandole
