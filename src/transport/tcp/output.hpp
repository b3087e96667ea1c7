// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "transport/tcp/frame.hpp"
#include "transport/transfer.hpp"

namespace farandole::tcp {

/// Is told when the kernel has taken a frame.
class OutputHandler {
 public:
  virtual ~OutputHandler() = default;
  /// The kernel has `payload` more bytes of the send.
  virtual void handed_over(Send& send, Bytes payload) = 0;
};

/// The sending half of a connection: a bounded queue of frames. They leave in order, as many as
/// possible with one system call, and long ones are not copied.
///
/// Threads   the engine's driver only.
/// Memory    payloads are read only by flush() and cut(), until the frame is handed over or cut.
class Output {
 public:
  Output();

  std::size_t room() const { return kFramesMax - count_; }  // frames
  bool empty() const { return count_ == 0; }
  std::size_t segment_count() const { return segment_count_; }  // data frames in the queue

  /// `payload` has frame.payload bytes and belongs to `send`; both may be null.
  void push(const Frame& frame, const std::byte* payload, Send* send);

  struct Outcome {
    std::size_t bytes = 0;  // that the kernel took
    bool lost = false;      // the connection is broken
  };
  /// Hands the kernel as much as it takes at once; if the queue is not empty then, the socket is
  /// full.
  Outcome flush(int fd, OutputHandler& handler);

  /// Takes out every frame for whose send `unwanted(Send&)` holds. Of a frame that is partly sent
  /// the rest is copied and still sent, so that the stream stays in step and the source is not
  /// read any more.
  template <class Predicate>
  void cut(Predicate unwanted) {
    for (std::size_t i = 0; i < count_; ++i) {
      Item& item = at(i);
      if (item.send != nullptr && unwanted(*item.send)) cut(item);
    }
  }

 private:
  static constexpr std::size_t kFramesMax = 32;
  struct Item {
    std::array<std::byte, kFrameBytes> header;
    const std::byte* payload = nullptr;
    std::size_t header_bytes = 0;
    std::size_t payload_bytes = 0;
    Send* send = nullptr;
    bool segment = false;
    std::size_t bytes() const { return header_bytes + payload_bytes; }
  };
  Item& at(std::size_t i) { return items_[(first_ + i) % kFramesMax]; }
  void cut(Item& item);
  void take(std::size_t bytes, OutputHandler& handler);

  std::unique_ptr<std::array<Item, kFramesMax>> storage_;
  std::array<Item, kFramesMax>& items_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
  std::size_t written_ = 0;  // bytes of the first frame that the kernel has
  std::size_t segment_count_ = 0;
  std::unique_ptr<std::byte[]> rest_;  // of a cut frame
};

}  // namespace farandole::tcp
