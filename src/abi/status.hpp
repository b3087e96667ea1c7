// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "farandole/farandole.h"
#include "farandole/result.hpp"

namespace farandole::abi {

/// `error` in its C form, which points into `error`.
farandole_error shown(const Error& error) noexcept;
/// Keeps `error` as the last one of this thread. Never throws: if there is no memory for the
/// message, it keeps an error that says so.
farandole_status report(const Error& error) noexcept;
/// The same for something that was thrown inside `call`; `what` may be null.
farandole_status report_thrown(const char* call, const char* what) noexcept;
/// The last error that this thread reported.
const farandole_error* last_error() noexcept;

/// "farandole_run: argument 'root' is 3, allowed is a rank from 0 to 1."
Error wrong_argument(std::string_view call, std::string_view argument, std::string_view given,
                     std::string_view allowed);

/// Runs the body of an exported function, which returns Result<void>, and turns its outcome into a
/// status. No exception crosses the boundary.
template <class Body>
farandole_status guarded(const char* call, Body&& body) noexcept {
  try {
    const Result<void> outcome = std::forward<Body>(body)();
    return outcome ? FARANDOLE_OK : report(outcome.error());
  } catch (const std::bad_alloc&) {
    return report_thrown(call, "no memory is left");
  } catch (const std::exception& thrown) {
    return report_thrown(call, thrown.what());
  } catch (...) {
    return report_thrown(call, nullptr);
  }
}

}  // namespace farandole::abi
