// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "farandole/device.hpp"
#include "farandole/result.hpp"

namespace farandole {

/// The end of a call on a device's memory, among the work of the device's streams.
///
/// Threads   any, one call at a time.
class DeviceEnd {
 public:
  virtual ~DeviceEnd() = default;
  /// What is enqueued on `stream` from now on waits for the end. Does not block.
  virtual Result<void> order(void* stream) = 0;
  /// Blocks the host until the end.
  virtual Result<void> synchronize() = 0;
  /// Whether the end has come. Does not block.
  virtual Result<bool> test() = 0;
};

/// Carries calls on a device's memory through host memory, in the order of the device's streams.
///
/// A call is cut into pieces. Each goes through staging memory: a copy of the input, a word that
/// opens the gate of the piece's operation, a wait for the word that the operation sets when it
/// ends, a copy of the output. All of it is enqueued by the thread that makes the call, so that the
/// device never waits for what nobody has enqueued, and the operations run as they do for host
/// memory, without a call into the driver. [Dryden18], section IV, has the parts for one piece.
///
/// Threads   any; one call after the other, in an order that is the same on all ranks for calls
///           that exchange messages.
/// Memory    The staging memory of a piece is used again by later pieces, which wait on the device
///           until it is free.
/// Errors    kInternal: the driver refuses a call. kUnsupported: the stream is being captured.
class HostTransfer {
 public:
  virtual ~HostTransfer() = default;

  /// `count` rows of `bytes` in the device's memory, which begin `pitch` bytes apart. In staging
  /// memory they follow each other.
  struct Rows {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    std::size_t count = 1;
    std::size_t pitch = 0;
    std::size_t total() const { return bytes * count; }
  };

  /// Rows, and where they lie in staging memory, in bytes from its beginning.
  struct Part {
    Rows rows;
    std::size_t at = 0;
  };

  /// One operation's share of a call, on its way through host memory.
  struct Piece {
    std::byte* staging = nullptr;
    Gate gate;              // for the operation; if there is none in the end, gate.leave()
    std::size_t place = 0;  // for bring_back()
  };

  /// What one call enqueues; between two calls for one piece others may come.
  class Pass {
   public:
    virtual ~Pass() = default;
    /// Copies the parts to `staging_bytes` of staging memory.
    virtual Result<Piece> bring_out(std::span<const Part> in, std::size_t staging_bytes) = 0;
    /// Copies what is there once the piece's operation has ended.
    virtual Result<void> bring_back(const Piece& piece, std::span<const Part> out) = 0;
    /// After the last piece. If the call blocks its stream, the stream waits for the end.
    virtual Result<std::shared_ptr<DeviceEnd>> end() = 0;
  };

  /// A call of so many bytes, in so many pieces, whose input is ready when `stream` has come so
  /// far. `blocks`: the stream then waits for its end. Other threads' calls wait until the pass is
  /// destroyed.
  virtual Result<std::unique_ptr<Pass>> begin(void* stream, bool blocks, std::size_t bytes,
                                              std::size_t pieces) = 0;
  /// As many pieces as may be on their way at once, for pieces of this length.
  virtual std::size_t pieces_at_once(std::size_t bytes) const = 0;
};

}  // namespace farandole
