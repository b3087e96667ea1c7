// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "transport/tcp/frame.hpp"
#include "transport/transfer.hpp"

namespace farandole::tcp {

/// Receives the frames of a connection. A result of false means that the peer breaks the protocol.
class InputHandler {
 public:
  virtual ~InputHandler() = default;
  /// Called while a head has not arrived in full, again whenever more of it has: returns the id of
  /// the receive that takes it as it comes, 0 to drop it, nothing to keep it for on_message().
  virtual std::optional<std::uint64_t> on_head(const Frame& frame) = 0;
  /// `head` holds frame.payload bytes and is valid during the call.
  virtual bool on_message(const Frame& frame, const std::byte* head) = 0;
  virtual bool on_answer(const Frame& frame) = 0;  // kReady, kRefuse
  enum class DataFate : std::uint8_t { kTaken, kDropped, kCorrupt };
  /// Called once per data frame, before its payload is read.
  virtual DataFate on_data(const Frame& frame) = 0;
  /// The receive with this id; null if it is gone and its bytes are to be dropped.
  virtual Receive* receive_of(std::uint64_t id) = 0;
  /// `bytes` more have been delivered to the receive with this id.
  virtual void delivered(std::uint64_t id, Bytes bytes) = 0;
};

/// The receiving half of a connection: cuts the byte stream into frames.
///
/// Headers and short heads pass through a buffer. The payload of data frames, and the part of a
/// head that arrives later, is read straight into the target, or into the buffer and from there in
/// pieces to `consume`.
///
/// Threads   the engine's driver only.
class Input {
 public:
  Input();

  struct Outcome {
    std::size_t bytes = 0;  // read from the socket
    bool lost = false;      // the stream ended or failed
    bool corrupt = false;   // a frame broke the protocol
  };
  /// Reads what the socket has, up to a bound that keeps one peer from starving the others.
  Outcome read(int fd, InputHandler& handler);

 private:
  struct Stream {          // the payload that is being read
    std::uint64_t id = 0;  // 0: its bytes are dropped
    std::uint64_t offset = 0;
    std::size_t remaining = 0;
  };
  struct Pull {
    std::size_t asked = 0;
    std::ptrdiff_t got = 0;
  };
  Pull pull(int fd, InputHandler& handler);
  Pull pull_into(int fd, Receive& receive, InputHandler& handler);
  bool parse(InputHandler& handler);
  bool parse_frame(InputHandler& handler, bool& complete);
  bool stream_from_buffer(InputHandler& handler);
  void advance(std::size_t bytes);
  std::size_t buffered() const { return end_ - begin_; }

  std::unique_ptr<std::byte[]> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::size_t missing_ = 0;  // bytes missing of the head that the buffer keeps until it is complete
  Stream stream_;
};

}  // namespace farandole::tcp
