// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/aborts.hpp"

#include <algorithm>
#include <utility>

#include "bootstrap/wire.hpp"

namespace farandole {
namespace {

constexpr std::string_view kAbortWord = "abort ";

}  // namespace

std::string encode(const Abort& abort) {
  Writer writer;
  writer.u32(abort.communicator).i32(abort.first.value()).i32(abort.by.value());
  writer.text(abort.reason);
  return std::string(kAbortWord) + writer.bytes();
}

std::optional<Abort> decode_abort(std::string_view message) {
  if (!message.starts_with(kAbortWord)) return std::nullopt;
  Reader reader(message.substr(kAbortWord.size()));
  Abort abort;
  abort.communicator = reader.u32();
  abort.first = Rank{reader.rank()};
  abort.by = Rank{reader.rank()};
  abort.reason = reader.text();
  if (!reader.complete()) return std::nullopt;
  return abort;
}

bool Aborts::add(Abort abort) {
  if (find(abort.communicator, abort.first) != nullptr) return false;
  if (aborts_.size() == kMax) aborts_.pop_front();
  aborts_.push_back(std::move(abort));
  return true;
}

const Abort* Aborts::find(std::uint32_t communicator, Rank first) const {
  const auto found = std::ranges::find_if(aborts_, [&](const Abort& abort) {
    return abort.communicator == communicator && abort.first == first;
  });
  return found == aborts_.end() ? nullptr : &*found;
}

}  // namespace farandole
