// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/transfer.hpp"

namespace farandole::tcp {

/// What a frame on a connection says.
///
///   kMessage  a message begins: its envelope and, as payload, its head. `bytes` is the length of
///             the whole message; `reply` is the sender's id when more than the head follows.
///   kReady    answers kMessage: send the rest of `id` to the receive `reply`.
///   kRefuse   answers kMessage: the rest of `id` is not wanted; it counts as sent.
///   kData     `payload` bytes at `offset` of the message, for the receive `id`.
enum class FrameKind : std::uint8_t { kMessage = 1, kReady, kRefuse, kData };

/// The header of a frame. Fields that its kind does not use are zero on the wire.
struct Frame {
  FrameKind kind = FrameKind::kMessage;
  Tag tag{};
  Signature signature{.root = 0};
  std::uint64_t bytes = 0;
  std::uint64_t id = 0;     // of the transfer, as the receiver of the frame numbers it
  std::uint64_t reply = 0;  // of the transfer, as the sender of the frame numbers it
  std::uint64_t offset = 0;
  std::uint32_t payload = 0;  // bytes that follow the header
  bool operator==(const Frame&) const = default;
};

/// On the wire a header is little-endian: magic u16, version u8, kind u8, payload u32,
/// communicator u32, sequence u32, lane u32, zero u32, signature (4 x u8, u32, u64), bytes u64,
/// id u64, reply u64, offset u64.
inline constexpr std::size_t kFrameBytes = 72;
inline constexpr std::uint16_t kFrameMagic = 0x4466;
inline constexpr std::uint8_t kFrameVersion = 1;

// Limits that both ends enforce; a header beyond them is corrupt.
inline constexpr std::uint32_t kHeadBytesMax = 512 << 10;
inline constexpr std::uint32_t kSegmentBytesMax = 1 << 20;
inline constexpr std::uint64_t kMessageBytesMax = std::uint64_t{1} << 48;

std::array<std::byte, kFrameBytes> encode(const Frame& frame);

/// Nothing if the bytes are not what encode() makes of a valid frame within the limits.
std::optional<Frame> decode(std::span<const std::byte, kFrameBytes> header);

}  // namespace farandole::tcp
