#pragma once

/// In a third library that two plugins share.
__attribute__((visibility("default"))) void sdk_shared_log(const char* text);
