// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/wire.hpp"

#include <limits>

namespace farandole {
namespace {

constexpr std::size_t kLengthBytes = 4;

}  // namespace

Writer& Writer::integer(std::uint64_t value, int width) {
  for (int i = 0; i < width; ++i) bytes_.push_back(static_cast<char>(value >> 8 * i & 0xff));
  return *this;
}

Writer& Writer::text(std::string_view value) {
  u32(static_cast<std::uint32_t>(value.size()));
  bytes_.append(value);
  return *this;
}

std::uint64_t Reader::integer(std::size_t width) {
  if (rest_.size() < width) {
    ok_ = false;
    rest_ = {};
    return 0;
  }
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < width; ++i) {
    value |= std::uint64_t{static_cast<unsigned char>(rest_[i])} << 8 * i;
  }
  rest_.remove_prefix(width);
  return value;
}

std::uint8_t Reader::below(int end) {
  const std::uint8_t value = u8();
  require(value < end);
  return ok_ ? value : std::uint8_t{0};
}

std::size_t Reader::count(std::size_t bytes_each_min) {
  const std::size_t announced = u32();
  require(announced <= left() / bytes_each_min);
  return ok_ ? announced : 0;
}

std::int32_t Reader::rank() {
  const std::int32_t rank = i32();
  require(rank >= 0 && rank < std::numeric_limits<std::int32_t>::max());
  return rank;
}

std::string Reader::text() {
  const std::size_t size = u32();
  if (rest_.size() < size) {
    ok_ = false;
    rest_ = {};
    return {};
  }
  std::string value(rest_.substr(0, size));
  rest_.remove_prefix(size);
  return value;
}

std::string encode_frame(std::uint8_t type, std::string_view payload) {
  Writer writer;
  writer.u32(static_cast<std::uint32_t>(payload.size() + 1)).u8(type);
  std::string bytes = std::move(writer).bytes();
  bytes.append(payload);
  return bytes;
}

std::optional<Frame> FrameReader::next() {
  const std::string_view rest = std::string_view(buffer_).substr(start_);
  if (broken_ || rest.size() < kLengthBytes) return std::nullopt;
  const std::size_t length = Reader(rest).u32();
  if (length == 0 || length > payload_bytes_max_ + 1) {
    broken_ = true;
    return std::nullopt;
  }
  if (rest.size() < kLengthBytes + length) return std::nullopt;
  Frame frame{static_cast<std::uint8_t>(rest[kLengthBytes]),
              std::string(rest.substr(kLengthBytes + 1, length - 1))};
  start_ += kLengthBytes + length;
  if (start_ == buffer_.size() || start_ > 65536) {
    buffer_.erase(0, start_);
    start_ = 0;
  }
  return frame;
}

}  // namespace farandole
