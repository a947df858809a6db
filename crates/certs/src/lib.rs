//! Keys and certificates: files, local CA, choice by name.
