// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/frame.hpp"

#include <type_traits>

namespace farandole::tcp {
namespace {

class Writer {
 public:
  explicit Writer(std::byte* at) : at_(at) {}

  template <class T>
  void put(T value) {
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      *at_++ = static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i));
    }
  }

 private:
  std::byte* at_;
};

class Reader {
 public:
  explicit Reader(const std::byte* at) : at_(at) {}

  template <class T>
  T take() {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      value |= std::to_integer<std::uint64_t>(*at_++) << (8 * i);
    }
    return static_cast<T>(value);
  }

 private:
  const std::byte* at_;
};

constexpr bool aligned(std::uint64_t bytes) {
  return bytes % Receive::kPieceAlignment == 0;
}

bool valid_message(const Frame& frame) {
  const bool whole = frame.payload == frame.bytes;
  return frame.bytes <= kMessageBytesMax && frame.payload <= kHeadBytesMax &&
         frame.payload <= frame.bytes && (whole || aligned(frame.payload)) &&
         whole == (frame.reply == 0) && frame.id == 0 && frame.offset == 0;
}

bool without_envelope(const Frame& frame) {
  return frame.tag == Tag{} && frame.signature == Signature{.root = 0} && frame.bytes == 0;
}

bool valid(const Frame& frame) {
  switch (frame.kind) {
    case FrameKind::kMessage:
      return valid_message(frame);
    case FrameKind::kReady:
      return without_envelope(frame) && frame.id != 0 && frame.reply != 0 && frame.offset == 0 &&
             frame.payload == 0;
    case FrameKind::kRefuse:
      return without_envelope(frame) && frame.id != 0 && frame.reply == 0 && frame.offset == 0 &&
             frame.payload == 0;
    case FrameKind::kData:
      return without_envelope(frame) && frame.id != 0 && frame.reply == 0 &&
             frame.offset <= kMessageBytesMax && aligned(frame.offset) && frame.payload > 0 &&
             frame.payload <= kSegmentBytesMax;
  }
  return false;
}

}  // namespace

std::array<std::byte, kFrameBytes> encode(const Frame& frame) {
  std::array<std::byte, kFrameBytes> header;
  Writer out(header.data());
  out.put(kFrameMagic);
  out.put(kFrameVersion);
  out.put(static_cast<std::uint8_t>(frame.kind));
  out.put(frame.payload);
  out.put(frame.tag.operation.communicator);
  out.put(frame.tag.operation.sequence);
  out.put(frame.tag.lane);
  out.put(std::uint32_t{0});
  out.put(frame.signature.collective);
  out.put(frame.signature.dtype);
  out.put(frame.signature.reduction);
  out.put(frame.signature.algorithm);
  out.put(frame.signature.root);
  out.put(frame.signature.count);
  out.put(frame.bytes);
  out.put(frame.id);
  out.put(frame.reply);
  out.put(frame.offset);
  return header;
}

std::optional<Frame> decode(std::span<const std::byte, kFrameBytes> header) {
  Reader in(header.data());
  if (in.take<std::uint16_t>() != kFrameMagic) return std::nullopt;
  if (in.take<std::uint8_t>() != kFrameVersion) return std::nullopt;
  Frame frame;
  frame.kind = static_cast<FrameKind>(in.take<std::uint8_t>());
  frame.payload = in.take<std::uint32_t>();
  frame.tag.operation.communicator = in.take<std::uint32_t>();
  frame.tag.operation.sequence = in.take<std::uint32_t>();
  frame.tag.lane = in.take<std::uint32_t>();
  if (in.take<std::uint32_t>() != 0) return std::nullopt;
  frame.signature.collective = in.take<std::uint8_t>();
  frame.signature.dtype = in.take<std::uint8_t>();
  frame.signature.reduction = in.take<std::uint8_t>();
  frame.signature.algorithm = in.take<std::uint8_t>();
  frame.signature.root = in.take<std::int32_t>();
  frame.signature.count = in.take<std::uint64_t>();
  frame.bytes = in.take<std::uint64_t>();
  frame.id = in.take<std::uint64_t>();
  frame.reply = in.take<std::uint64_t>();
  frame.offset = in.take<std::uint64_t>();
  if (!valid(frame)) return std::nullopt;
  return frame;
}

}  // namespace farandole::tcp
