// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "frontend/split_request.hpp"

#include <utility>

#include "bootstrap/wire.hpp"

namespace farandole {

std::string encode(const SplitRequest& request) {
  Writer writer;
  writer.i64(request.color).i64(request.key).flag(request.takes_part).u32(request.number);
  return std::move(writer).bytes();
}

std::optional<SplitRequest> decode_split_request(std::string_view bytes) {
  Reader reader(bytes);
  SplitRequest request;
  request.color = reader.i64();
  request.key = reader.i64();
  request.takes_part = reader.flag();
  request.number = reader.u32();
  reader.require(request.number > 0);
  if (!reader.complete()) return std::nullopt;
  return request;
}

}  // namespace farandole
